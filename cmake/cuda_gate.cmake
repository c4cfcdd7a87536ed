# The compile gate of csrc/cuda: every .cu for the architectures of setup.py, no
# register spills (tools/nvcc_gate.py), and the torch adapters.
set(CMAKE_CUDA_ARCHITECTURES OFF)  # named below: CMake's own list does not know all of them
enable_language(CUDA)
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)  # CMake 3.25 knows none of nvcc 13
find_package(Python3 REQUIRED COMPONENTS Interpreter)

file(GLOB_RECURSE cuda_kernels CONFIGURE_DEPENDS csrc/cuda/*.cu)
add_library(simcore_cuda OBJECT ${cuda_kernels})
target_include_directories(simcore_cuda PRIVATE csrc)
target_compile_options(simcore_cuda PRIVATE
  -O3 --expt-relaxed-constexpr -Xptxas -v -Werror all-warnings --threads 0
  -gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_90,code=sm_90)
set_target_properties(simcore_cuda PROPERTIES CUDA_COMPILER_LAUNCHER
  "${Python3_EXECUTABLE};${CMAKE_SOURCE_DIR}/tools/nvcc_gate.py")

# Compiled, never linked: no torch is needed.
file(GLOB_RECURSE adapters CONFIGURE_DEPENDS csrc/torch/*.cpp)
add_library(simcore_cuda_adapters OBJECT ${adapters})
target_include_directories(simcore_cuda_adapters PRIVATE csrc)
target_include_directories(simcore_cuda_adapters SYSTEM PRIVATE
  ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
target_compile_definitions(simcore_cuda_adapters PRIVATE "SIMCORE_CUDA_ARCHITECTURES=\"8.0\"")
# Without optimisation, the compiler takes ends that throw for ends without a value.
target_compile_options(simcore_cuda_adapters PRIVATE -O0 -fvisibility=hidden -Wall -Wextra
  -Werror -Wno-return-type)
