# A script in the style of TensorRT 11: networks are always strongly typed, an engine comes from a
# stream reader, a context from a runtime configuration, CUDA from cuda.bindings.
import io
import sys

import numpy as np
import tensorrt as trt
from cuda.bindings import runtime as cudart


class Reader(trt.IStreamReaderV2):
    def __init__(self, plan):
        trt.IStreamReaderV2.__init__(self)
        self.file = io.BytesIO(plan)

    def read(self, num_bytes, stream):
        return self.file.read(num_bytes)

    def seek(self, offset, where):
        self.file.seek(offset, int(where))
        return True


class Writer(trt.IStreamWriter):
    def __init__(self):
        trt.IStreamWriter.__init__(self)
        self.data = b""

    def write(self, data):
        self.data += bytes(data)
        return len(data)


def build(path):
    logger = trt.Logger(trt.Logger.ERROR)
    builder = trt.Builder(logger)
    network = builder.create_network(0)
    parser = trt.OnnxParser(network, logger)
    with open(path, "rb") as file:
        assert parser.parse(file.read())
    config = builder.create_builder_config()
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, 1 << 30)
    profile = builder.create_optimization_profile()
    profile.set_shape("x", (1, 4), (2, 4), (8, 4))
    config.add_optimization_profile(profile)
    writer = Writer()
    assert builder.build_serialized_network_to_stream(network, config, writer)
    return writer.data


def main():
    plan = build(sys.argv[1])
    engine = trt.Runtime(trt.Logger(trt.Logger.ERROR)).deserialize_cuda_engine(Reader(plan))
    settings = engine.create_runtime_config()
    settings.set_execution_context_allocation_strategy(
        trt.ExecutionContextAllocationStrategy.USER_MANAGED
    )
    context = engine.create_execution_context(settings)
    x = np.load(sys.argv[2])
    assert context.set_input_shape("x", x.shape)
    size = max(1, context.update_device_memory_size_for_shapes())
    _, scratch = cudart.cudaMalloc(max(size, engine.device_memory_size_v2))
    context.set_device_memory(scratch, max(size, engine.device_memory_size_v2))
    y = np.empty(tuple(context.get_tensor_shape("y")), np.float32)
    _, d_x = cudart.cudaMalloc(x.nbytes)
    _, d_y = cudart.cudaMalloc(y.nbytes)
    _, stream = cudart.cudaStreamCreateWithFlags(cudart.cudaStreamNonBlocking)
    to_device = cudart.cudaMemcpyKind.cudaMemcpyHostToDevice
    cudart.cudaMemcpyAsync(d_x, x.ctypes.data, x.nbytes, to_device, stream)
    for i in range(engine.num_io_tensors):
        name = engine.get_tensor_name(i)
        is_input = engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT
        assert context.set_tensor_address(name, d_x if is_input else d_y)
    assert context.execute_async_v3(stream_handle=stream)
    to_host = cudart.cudaMemcpyKind.cudaMemcpyDeviceToHost
    cudart.cudaMemcpyAsync(y.ctypes.data, d_y, y.nbytes, to_host, stream)
    (err,) = cudart.cudaStreamSynchronize(stream)
    assert err == cudart.cudaError_t.cudaSuccess
    np.save(sys.argv[3], y)
    for address in (d_x, d_y, scratch):
        cudart.cudaFree(address)


if __name__ == "__main__":
    main()
