// What simcore.build_info() says of the library of CUDA kernels.

extern "C" __attribute__((visibility("default"))) const char simcore_cuda_architectures[] =
    SIMCORE_CUDA_ARCHITECTURES;
