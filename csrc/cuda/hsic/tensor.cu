// hsic_terms with the products of tensor cores.
#include "cuda/hsic/run.cuh"
#include "cuda/products/product_tensor.cuh"

namespace simcore::cuda {

template void run_hsic<TensorProduct<1>>(const DeviceHsicProblem&, const HsicPlan&, void*,
                                         const HsicOutput&, cudaStream_t);
template void run_hsic<TensorProduct<2>>(const DeviceHsicProblem&, const HsicPlan&, void*,
                                         const HsicOutput&, cudaStream_t);

}  // namespace simcore::cuda
