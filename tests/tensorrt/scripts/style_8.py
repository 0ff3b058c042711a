# A script in the style of TensorRT 8: buffers by binding, PyCUDA, `with` blocks, execute_async_v2.
import sys

import numpy as np
import pycuda.autoinit  # noqa: F401
import pycuda.driver as cuda
import tensorrt as trt

TRT_LOGGER = trt.Logger(trt.Logger.WARNING)
EXPLICIT_BATCH = 1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH)


class HostDeviceMem:
    def __init__(self, host_mem, device_mem):
        self.host = host_mem
        self.device = device_mem


def build(path):
    with (
        trt.Builder(TRT_LOGGER) as builder,
        builder.create_network(EXPLICIT_BATCH) as network,
        builder.create_builder_config() as config,
        trt.OnnxParser(network, TRT_LOGGER) as parser,
        trt.Runtime(TRT_LOGGER) as runtime,
    ):
        config.max_workspace_size = 1 << 28
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, 1 << 28)
        if builder.platform_has_fast_fp16:
            config.set_flag(trt.BuilderFlag.FP16)
        with open(path, "rb") as model:
            if not parser.parse(model.read()):
                for error in range(parser.num_errors):
                    print(parser.get_error(error))
                return None
        profile = builder.create_optimization_profile()
        profile.set_shape("x", (1, 4), (2, 4), (4, 4))
        assert config.add_optimization_profile(profile) == 0
        plan = builder.build_serialized_network(network, config)
        return runtime.deserialize_cuda_engine(plan)


def allocate_buffers(engine, context):
    inputs, outputs, bindings = [], [], []
    for binding in engine:
        index = engine.get_binding_index(binding)
        size = trt.volume(context.get_binding_shape(index))
        dtype = trt.nptype(engine.get_binding_dtype(binding))
        host_mem = cuda.pagelocked_empty(size, dtype)
        device_mem = cuda.mem_alloc(host_mem.nbytes)
        bindings.append(int(device_mem))
        (inputs if engine.binding_is_input(binding) else outputs).append(
            HostDeviceMem(host_mem, device_mem)
        )
    return inputs, outputs, bindings, cuda.Stream()


def do_inference_v2(context, bindings, inputs, outputs, stream):
    for inp in inputs:
        cuda.memcpy_htod_async(inp.device, inp.host, stream)
    assert context.execute_async_v2(bindings=bindings, stream_handle=stream.handle)
    for out in outputs:
        cuda.memcpy_dtoh_async(out.host, out.device, stream)
    stream.synchronize()
    return [out.host for out in outputs]


def main():
    x = np.load(sys.argv[2])
    with build(sys.argv[1]) as engine, engine.create_execution_context() as context:
        context.set_optimization_profile_async(0, cuda.Stream().handle)
        context.set_binding_shape(0, x.shape)
        assert context.all_binding_shapes_specified and context.all_shape_inputs_specified
        inputs, outputs, bindings, stream = allocate_buffers(engine, context)
        np.copyto(inputs[0].host, x.ravel())
        (y,) = do_inference_v2(context, bindings, inputs, outputs, stream)
        np.save(sys.argv[3], y.reshape(tuple(context.get_binding_shape(1))))


if __name__ == "__main__":
    main()
