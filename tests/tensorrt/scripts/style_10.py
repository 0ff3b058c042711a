# A script in the style of TensorRT 10: names of tensors, CUDA Python, execute_async_v3, an output
# allocator, a timing cache and an error recorder.
import ctypes
import sys

import numpy as np
import tensorrt as trt
from cuda import cuda, cudart


def check(call):
    err, *result = call
    if isinstance(err, cuda.CUresult):
        assert err == cuda.CUresult.CUDA_SUCCESS, err
    elif isinstance(err, cudart.cudaError_t):
        assert err == cudart.cudaError_t.cudaSuccess, err
    else:
        raise RuntimeError(f"unknown error type {err}")
    return result[0] if len(result) == 1 else result


class Logger(trt.ILogger):
    def __init__(self):
        trt.ILogger.__init__(self)
        self.errors = []

    def log(self, severity, msg):
        if severity <= trt.ILogger.ERROR:
            self.errors.append(msg)


class Allocator(trt.IOutputAllocator):
    def __init__(self):
        trt.IOutputAllocator.__init__(self)
        self.address, self.size, self.shape = 0, 0, None

    def reallocate_output_async(self, tensor_name, memory, size, alignment, stream):
        if size > self.size:
            if self.address:
                check(cudart.cudaFree(self.address))
            self.address, self.size = check(cudart.cudaMalloc(size)), size
        return self.address

    def notify_shape(self, tensor_name, shape):
        self.shape = tuple(shape)


def build(path, logger):
    builder = trt.Builder(logger)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, logger)
    assert parser.parse_from_file(path), [parser.get_error(i) for i in range(parser.num_errors)]
    config = builder.create_builder_config()
    config.builder_optimization_level = 2
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    cache = config.create_timing_cache(b"")
    config.set_timing_cache(cache, ignore_mismatch=False)
    profile = builder.create_optimization_profile()
    profile.set_shape("x", min=(1, 4), opt=(2, 4), max=(8, 4))
    config.add_optimization_profile(profile)
    return builder.build_serialized_network(network, config)


def main():
    logger = Logger()
    plan = build(sys.argv[1], logger)
    runtime = trt.Runtime(logger)
    engine = runtime.deserialize_cuda_engine(plan)
    context = engine.create_execution_context()
    stream = check(cudart.cudaStreamCreate())
    x = np.load(sys.argv[2])
    names = [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)]
    modes = [engine.get_tensor_mode(n) for n in names]
    assert modes == [trt.TensorIOMode.INPUT, trt.TensorIOMode.OUTPUT]
    host = check(cudart.cudaMallocHost(x.nbytes))
    pinned = np.ctypeslib.as_array(ctypes.cast(host, ctypes.POINTER(ctypes.c_float)), (x.size,))
    pinned[:] = x.ravel()
    device = check(cudart.cudaMalloc(x.nbytes))
    kinds = cudart.cudaMemcpyKind
    check(cudart.cudaMemcpyAsync(device, host, x.nbytes, kinds.cudaMemcpyHostToDevice, stream))
    assert context.set_input_shape("x", x.shape)
    assert context.infer_shapes() == []
    assert context.set_tensor_address("x", device)
    allocator = Allocator()
    assert context.set_output_allocator("y", allocator)
    assert context.execute_async_v3(stream)
    y = np.empty(allocator.shape, trt.nptype(engine.get_tensor_dtype("y")))
    check(
        cudart.cudaMemcpyAsync(
            y.ctypes.data, allocator.address, y.nbytes, kinds.cudaMemcpyDeviceToHost, stream
        )
    )
    check(cudart.cudaStreamSynchronize(stream))
    np.save(sys.argv[3], y)
    inspector = engine.create_engine_inspector()
    assert "Layers" in inspector.get_engine_information(trt.LayerInformationFormat.JSON)
    assert not context.set_input_shape("x", (9, 4))
    assert "does not satisfy any optimization profiles" in logger.errors[-1]
    for address in (device, allocator.address):
        check(cudart.cudaFree(address))
    check(cudart.cudaFreeHost(host))
    check(cudart.cudaStreamDestroy(stream))


if __name__ == "__main__":
    main()
