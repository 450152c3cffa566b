"""What is set too late in a Python program, and what is not."""

import textwrap

import pytest

from whichrank.source import program


def late(body):
    text = "import os\nimport torch.distributed as dist\n" + textwrap.dedent(body)
    return [
        (found.assignment.name, int(found.assignment.ref.locator[5:]) - 2) for found in program.read(text, "t.py").late
    ]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("dist.init_process_group()\nos.environ['NCCL_DEBUG'] = 'INFO'\n", [("NCCL_DEBUG", 2)]),
        ("dist.init_process_group()\nos.environ.setdefault('NCCL_DEBUG', 'INFO')\n", [("NCCL_DEBUG", 2)]),
        ("dist.init_process_group()\nos.putenv('NCCL_DEBUG', 'INFO')\n", [("NCCL_DEBUG", 2)]),
        ("dist.init_process_group()\nos.environ |= {'NCCL_DEBUG': 'INFO'}\n", [("NCCL_DEBUG", 2)]),
        ("e = os.environ\ndist.init_process_group()\ne['NCCL_DEBUG'] = '1'\n", [("NCCL_DEBUG", 3)]),
        ("os.environ['NCCL_DEBUG'] = 'INFO'\ndist.init_process_group()\n", []),
        ("dist.init_process_group()\nos.environ['MODEL'] = 'x'\n", []),
        ("dist.init_process_group()\ndist.destroy_process_group()\nos.environ['NCCL_DEBUG'] = 'INFO'\n", []),
        # through functions
        (
            """\
            def setup():
                dist.init_process_group()
            def main():
                setup()
                os.environ["NCCL_DEBUG"] = "INFO"
            main()
            """,
            [("NCCL_DEBUG", 5)],
        ),
        (
            """\
            def configure():
                os.environ["NCCL_DEBUG"] = "INFO"
            def main():
                configure()
                dist.init_process_group()
            if __name__ == "__main__":
                main()
            """,
            [],
        ),
        # branches exclude each other, and an early return has happened for the caller
        (
            """\
            if one:
                dist.init_process_group()
            else:
                os.environ["NCCL_DEBUG"] = "INFO"
            """,
            [],
        ),
        (
            """\
            def setup(rank):
                if rank:
                    dist.init_process_group()
                    return 1
                return 0
            setup(1)
            os.environ["NCCL_DEBUG"] = "INFO"
            """,
            [("NCCL_DEBUG", 7)],
        ),
        (
            """\
            dist.init_process_group()
            if not dist.is_initialized():
                os.environ["NCCL_DEBUG"] = "INFO"
            """,
            [],
        ),
        (
            """\
            try:
                dist.init_process_group()
            finally:
                pass
            with open("x") as f:
                os.environ["NCCL_DEBUG"] = "INFO"
            """,
            [("NCCL_DEBUG", 6)],
        ),
        (
            """\
            class Trainer:
                def __init__(self):
                    dist.init_process_group()
                    self.more()
                def more(self):
                    os.environ["TORCH_NCCL_BLOCKING_WAIT"] = "1"
            """,
            [("TORCH_NCCL_BLOCKING_WAIT", 6)],
        ),
        # a function that other files call starts fresh, but after the imports
        ("def f():\n    os.environ['NCCL_DEBUG'] = 'INFO'\ndist.init_process_group()\n", []),
        ("def f():\n    os.environ['TORCH_DISTRIBUTED_DEBUG'] = 'INFO'\n", [("TORCH_DISTRIBUTED_DEBUG", 2)]),
        ("dist.barrier()\nos.environ['NCCL_DEBUG'] = 'INFO'\n", [("NCCL_DEBUG", 2)]),
        ("torch.cuda.set_device(0)\nos.environ['CUDA_VISIBLE_DEVICES'] = '0'\n", [("CUDA_VISIBLE_DEVICES", 2)]),
        ("model.to('cuda:0')\nos.environ['CUDA_VISIBLE_DEVICES'] = '0'\n", [("CUDA_VISIBLE_DEVICES", 2)]),
        ("torch.cuda.is_available()\nos.environ['CUDA_VISIBLE_DEVICES'] = '0'\n", []),
        ("torch.device('cuda')\nos.environ['CUDA_VISIBLE_DEVICES'] = '0'\n", []),
    ],
)
def test_order(body, expected):
    assert late(body) == expected


def test_recursion_and_loops_end():
    assert late("def f():\n    g()\ndef g():\n    f()\nf()\nwhile True:\n    dist.init_process_group()\n") == []


@pytest.mark.parametrize("text", ["def f(:\n", "x = " + "(" * 5000, "a = 1" + " + 1" * 20_000, "\0"])
def test_what_does_not_parse_is_said(text):
    assert program.read(text, "t.py").note


def test_wide_programs_are_bounded():
    calls = "\n".join(f"def f{i}():\n    f{i + 1}(); f{i + 1}()" for i in range(40))
    program.read("import os\n" + calls + "\nf0()\n", "t.py")
