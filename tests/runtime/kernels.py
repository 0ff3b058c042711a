"""Small kernels written as LLVM IR, compiled to ELF objects, for the tests of the runtime."""

from __future__ import annotations

import functools

import llvmlite.binding as llvm

TRIPLE = "x86_64-unknown-none-elf"

HEADER = """
define void @{entry}(ptr %buffers, ptr %params, i64 %worker, i64 %num_workers, ptr %status) {{
entry:
  %n = load i64, ptr %params
  %span0 = add i64 %n, %num_workers
  %span1 = sub i64 %span0, 1
  %span = sdiv i64 %span1, %num_workers
  %begin = mul i64 %worker, %span
  %end0 = add i64 %begin, %span
  %over = icmp sgt i64 %end0, %n
  %end = select i1 %over, i64 %n, i64 %end0
"""

LOOP = """
  %p0 = getelementptr ptr, ptr %buffers, i64 0
  %a = load ptr, ptr %p0
  %p1 = getelementptr ptr, ptr %buffers, i64 1
  %b = load ptr, ptr %p1
  %p2 = getelementptr ptr, ptr %buffers, i64 2
  %c = load ptr, ptr %p2
  br label %head
head:
  %i = phi i64 [ %begin, %entry ], [ %next, %latch ]
  %more = icmp slt i64 %i, %end
  br i1 %more, label %body, label %done
body:
"""

FOOTER = """
  br label %latch
latch:
  %next = add i64 %i, 1
  br label %head
done:
  ret void
}
"""

# c[i] = a[i] + b[i]
ADD = """
  %ai = getelementptr float, ptr %a, i64 %i
  %bi = getelementptr float, ptr %b, i64 %i
  %ci = getelementptr float, ptr %c, i64 %i
  %x = load float, ptr %ai
  %y = load float, ptr %bi
  %z = fadd float %x, %y
  store float %z, ptr %ci
"""

# c[i] = a[b[i]], status 1 when b[i] is not in [0, params[1])
GATHER = """
  %bi = getelementptr i64, ptr %b, i64 %i
  %ci = getelementptr float, ptr %c, i64 %i
  %k = load i64, ptr %bi
  %limit_at = getelementptr i64, ptr %params, i64 1
  %limit = load i64, ptr %limit_at
  %good = icmp ult i64 %k, %limit
  br i1 %good, label %load, label %bad
bad:
  store i32 1, ptr %status
  br label %latch
load:
  %ak = getelementptr float, ptr %a, i64 %k
  %x = load float, ptr %ak
  store float %x, ptr %ci
"""

# c[i] = a[i] * table[i % 8] with a constant table and a dispatch through a jump table on i % 8
TABLE = """
  %ai = getelementptr float, ptr %a, i64 %i
  %ci = getelementptr float, ptr %c, i64 %i
  %x = load float, ptr %ai
  %m = and i64 %i, 7
  %ti = getelementptr [8 x float], ptr @table, i64 0, i64 %m
  %t = load float, ptr %ti
  %m32 = trunc i64 %m to i32
  switch i32 %m32, label %k7 [ i32 0, label %k0 i32 1, label %k1 i32 2, label %k2
                               i32 3, label %k3 i32 4, label %k4 i32 5, label %k5 i32 6, label %k6 ]
k0:
  %r0 = fadd float %x, %t
  br label %join
k1:
  %r1 = fmul float %x, %t
  br label %join
k2:
  %r2 = fsub float %x, %t
  br label %join
k3:
  %r3 = fdiv float %x, %t
  br label %join
k4:
  %r4 = fsub float %t, %x
  br label %join
k5:
  %r5 = fneg float %x
  br label %join
k6:
  %r6 = fmul float %t, %t
  br label %join
k7:
  %r7 = call float @twice(float %x)
  br label %join
join:
  %r = phi float [ %r0, %k0 ], [ %r1, %k1 ], [ %r2, %k2 ], [ %r3, %k3 ], [ %r4, %k4 ],
                 [ %r5, %k5 ], [ %r6, %k6 ], [ %r7, %k7 ]
  store float %r, ptr %ci
"""

TABLE_GLOBALS = """
@table = private unnamed_addr constant [8 x float] [float 1.0, float 2.0, float 3.0, float 4.0,
  float 5.0, float 6.0, float 7.0, float 8.0], align 32
define internal float @twice(float %x) noinline {
  %y = fadd float %x, %x
  ret float %y
}
"""


def table_reference(x: float, i: int) -> float:
    """What the TABLE kernel computes for element i (exact for small integers)."""
    m, t = i % 8, float(i % 8 + 1)
    return (x + t, x * t, x - t, x / t, t - x, -x, t * t, x + x)[m]


def source(body: str, entry: str = "entry", extra: str = "") -> str:
    """A whole kernel around the body of its loop."""
    return extra + HEADER.format(entry=entry) + LOOP + body + FOOTER


@functools.cache
def compile_ir(text: str, cpu: str = "x86-64") -> bytes:
    """The ELF object of LLVM IR, as the code generator emits it."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(TRIPLE).create_target_machine(
        cpu=cpu, opt=2, reloc="pic", codemodel="small"
    )
    module = llvm.parse_assembly(text)
    module.triple = TRIPLE
    module.verify()
    return bytes(machine.emit_object(module))


def add_object() -> bytes:
    """c[i] = a[i] + b[i] for i < params[0]; buffers a, b, c."""
    return compile_ir(source(ADD))


def reversed_add_object() -> bytes:
    """`add_object`, but the last worker does the first share."""
    text = source(ADD).replace("i64 %worker,", "i64 %reversed,")
    start = "entry:\n  %last = sub i64 %num_workers, 1\n  %worker = sub i64 %last, %reversed\n"
    return compile_ir(text.replace("entry:\n", start, 1))


def gather_object() -> bytes:
    """c[i] = a[b[i]] for i < params[0] with b[i] checked against params[1]."""
    return compile_ir(source(GATHER))


def table_object() -> bytes:
    """`table_reference` of every element; has a constant pool, a jump table and a call."""
    return compile_ir(source(TABLE, extra=TABLE_GLOBALS))
