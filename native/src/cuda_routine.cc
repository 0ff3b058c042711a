#include "cuda_routine.h"

#include "cuda_libraries.h"
#include "error.h"

namespace braze {

std::unique_ptr<CudaRoutine> open_cuda_routine(const Plan& plan, const LibraryCall& step) {
  if (step.library == "cublaslt" && step.routine == "matmul") return open_matmul(plan, step);
  fail(BRAZE_ERROR_TARGET, "step '", step.name, "' of the engine calls ", step.routine, " of ",
       step.library, ", which does not run on a GPU; build it with target='cpu'");
}

}  // namespace braze
