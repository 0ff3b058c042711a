#include "cuda_routine.h"

#include "cuda_libraries.h"
#include "error.h"

namespace braze {

std::unique_ptr<CudaRoutine> open_cuda_routine(const Plan& plan, const LibraryCall& step,
                                               const Section& code) {
  if (step.library == "cublaslt" && step.routine == "matmul") return open_matmul(plan, step);
  if (step.library == "cudnn" && step.routine == "run") return open_dnn_plan(plan, step, code);
  fail(BRAZE_ERROR_TARGET, "step '", step.name, "' of the engine calls ", step.routine, " of ",
       step.library, ", which does not run on a GPU; build it with target='cpu'");
}

}  // namespace braze
