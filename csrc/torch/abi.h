// The C functions of torch's stable ABI that simcore calls, as every torch from 2.11 on has them.
// Nothing else of torch is known to csrc, and no header of torch is read; tests/project/test_abi.py
// compares these declarations with torch's own.
#pragma once

#include <cstddef>
#include <cstdint>

// torch reads what follows as an extension that was built with this release: 2.11.
constexpr uint64_t kTorchAbi = uint64_t(2) << 56 | uint64_t(11) << 48;

#pragma GCC visibility push(default)
extern "C" {

using AOTITorchError = int32_t;  // 0 is success
using StableIValue = uint64_t;   // an argument of an operator, or a result: torch/values.h

class TorchLibraryOpaque;
struct AtenTensorOpaque;
struct DeviceGuardOpaque;
struct StableListOpaque;
struct StringOpaque;
using AtenTensorHandle = AtenTensorOpaque*;
using DeviceGuardHandle = DeviceGuardOpaque*;
using StableListHandle = StableListOpaque*;
using StringHandle = StringOpaque*;
using TorchLibraryHandle = TorchLibraryOpaque*;

// ---- numbers that stand for dtypes, devices and formats

int32_t aoti_torch_dtype_bfloat16();
int32_t aoti_torch_dtype_bool();
int32_t aoti_torch_dtype_complex32();
int32_t aoti_torch_dtype_complex64();
int32_t aoti_torch_dtype_complex128();
int32_t aoti_torch_dtype_float16();
int32_t aoti_torch_dtype_float32();
int32_t aoti_torch_dtype_float64();
int32_t aoti_torch_dtype_float8_e4m3fn();
int32_t aoti_torch_dtype_float8_e4m3fnuz();
int32_t aoti_torch_dtype_float8_e5m2();
int32_t aoti_torch_dtype_float8_e5m2fnuz();
int32_t torch_dtype_float8_e8m0fnu();
int32_t torch_dtype_float4_e2m1fn_x2();
int32_t aoti_torch_dtype_int8();
int32_t aoti_torch_dtype_int16();
int32_t aoti_torch_dtype_int32();
int32_t aoti_torch_dtype_int64();
int32_t aoti_torch_dtype_uint8();
int32_t aoti_torch_dtype_uint16();
int32_t aoti_torch_dtype_uint32();
int32_t aoti_torch_dtype_uint64();
size_t aoti_torch_dtype_element_size(int32_t dtype);
int32_t aoti_torch_device_type_cpu();
int32_t aoti_torch_device_type_cuda();
int32_t aoti_torch_layout_strided();
int32_t aoti_torch_memory_format_contiguous_format();

// ---- tensors: a handle that a function returns is the caller's

AOTITorchError aoti_torch_new_tensor_handle(AtenTensorHandle, AtenTensorHandle* same_tensor);
AOTITorchError aoti_torch_delete_tensor_object(AtenTensorHandle);
AOTITorchError aoti_torch_get_dim(AtenTensorHandle, int64_t*);
AOTITorchError aoti_torch_get_numel(AtenTensorHandle, int64_t*);
AOTITorchError aoti_torch_get_size(AtenTensorHandle, int64_t dim, int64_t*);
AOTITorchError aoti_torch_get_sizes(AtenTensorHandle, int64_t** borrowed);
AOTITorchError aoti_torch_get_stride(AtenTensorHandle, int64_t dim, int64_t*);
AOTITorchError aoti_torch_get_strides(AtenTensorHandle, int64_t** borrowed);
AOTITorchError aoti_torch_get_dtype(AtenTensorHandle, int32_t*);
AOTITorchError aoti_torch_get_device_type(AtenTensorHandle, int32_t*);
AOTITorchError aoti_torch_get_device_index(AtenTensorHandle, int32_t*);
AOTITorchError aoti_torch_is_contiguous(AtenTensorHandle, bool*);
AOTITorchError torch_get_const_data_ptr(AtenTensorHandle, const void** borrowed);
AOTITorchError torch_get_mutable_data_ptr(AtenTensorHandle, void** borrowed);
AOTITorchError aoti_torch_create_tensor_from_blob_v2(void* data, int64_t dim, const int64_t* sizes,
                                                     const int64_t* strides, int64_t storage_offset,
                                                     int32_t dtype, int32_t device_type,
                                                     int32_t device_index, AtenTensorHandle*,
                                                     int32_t layout, const uint8_t* opaque_metadata,
                                                     int64_t opaque_metadata_size);

// ---- lists and strings, which a StableIValue holds as handles

AOTITorchError torch_new_list_reserve_size(size_t, StableListHandle*);
AOTITorchError torch_list_push_back(StableListHandle, StableIValue);
AOTITorchError torch_list_get_item(StableListHandle, size_t index, StableIValue*);
AOTITorchError torch_list_size(StableListHandle, size_t*);
AOTITorchError torch_delete_list(StableListHandle);
AOTITorchError torch_new_string_handle(const char*, size_t length, StringHandle*);
AOTITorchError torch_string_c_str(StringHandle, const char** borrowed);
AOTITorchError torch_string_length(StringHandle, size_t*);
AOTITorchError torch_delete_string(StringHandle);

// ---- operators

AOTITorchError aoti_torch_library_init_def(const char* library, const char* file, uint32_t line,
                                           TorchLibraryHandle*);
AOTITorchError aoti_torch_library_init_impl(const char* library, const char* dispatch_key,
                                            const char* file, uint32_t line, TorchLibraryHandle*);
AOTITorchError aoti_torch_library_def(TorchLibraryHandle, const char* schema);
// stack: the arguments, which the function takes, and which its results replace.
AOTITorchError torch_library_impl(TorchLibraryHandle, const char* name,
                                  void (*function)(StableIValue* stack, uint64_t arguments,
                                                   uint64_t results),
                                  uint64_t abi);
AOTITorchError aoti_torch_delete_library_object(TorchLibraryHandle);
AOTITorchError torch_call_dispatcher(const char* name, const char* overload, StableIValue* stack,
                                     uint64_t abi);

// ---- the state of a thread and of a device

AOTITorchError torch_get_num_threads(uint32_t*);
AOTITorchError torch_parallel_for(int64_t begin, int64_t end, int64_t grain,
                                  void (*body)(int64_t begin, int64_t end, void* context),
                                  void* context);
bool aoti_torch_grad_mode_is_enabled();
void aoti_torch_grad_mode_set_enabled(bool);
AOTITorchError aoti_torch_create_device_guard(int32_t device_index, DeviceGuardHandle*);
AOTITorchError aoti_torch_delete_device_guard(DeviceGuardHandle);
AOTITorchError aoti_torch_get_current_cuda_stream(int32_t device_index, void** stream);

}  // extern "C"
#pragma GCC visibility pop
