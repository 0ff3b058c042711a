"""Convolutions over one axis in the form of the templates, which loop over planes."""

from __future__ import annotations

from dataclasses import replace

from braze.ops.lowering import AnchorSpec, ConvSpec


def planar(spec: AnchorSpec) -> ConvSpec:
    """`spec`, a unit axis put before the only one of a 1-D convolution.

    The same elements in the same order, so the flat rows of the output stay what they were. Only a
    template's loops see the form: an epilogue counts the axes of the kernel's own spec.
    """
    assert isinstance(spec, ConvSpec), spec
    if len(spec.kernel) != 1:
        return spec
    begin, end = spec.pads
    return replace(
        spec,
        in_spatial=(1, *spec.in_spatial),
        out_spatial=(1, *spec.out_spatial),
        kernel=(1, *spec.kernel),
        strides=(1, *spec.strides),
        dilations=(1, *spec.dilations),
        pads=(0, begin, 0, end),
    )
