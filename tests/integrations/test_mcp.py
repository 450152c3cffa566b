"""`whichrank mcp`, driven by the official client over stdio as an agent would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jsonschema

from tests import needs
from tests.conftest import ROOT, command_environment

mcp, anyio, _ = needs.package("mcp"), needs.package("anyio"), needs.package("mcp_types")


def talk(conversation):
    """Start the command, and have a conversation with it."""

    environment = {**command_environment(), "PYTHONPATH": str(ROOT / "src")}
    server = mcp.StdioServerParameters(command=sys.executable, args=["-m", "whichrank", "mcp"], env=environment)

    async def main():
        async with mcp.Client(server, read_timeout_seconds=60) as client:
            return await conversation(client)

    return anyio.run(main)


def text(result) -> str:
    return result.content[0].text


def test_an_agent_asks_everything(tmp_path: Path) -> None:
    async def conversation(client):
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        answers = {
            "diagnose": await client.call_tool("diagnose", {"paths": [str(ROOT / "examples" / "skipped_collective")]}),
            "explain": await client.call_tool("explain", {"words": "Xid 79"}),
            "env_lint": await client.call_tool("env_lint", {"paths": [str(script)], "torch": "2.6"}),
            "lint": await client.call_tool("lint", {"paths": [str(program)]}),
        }
        wrong = [
            await client.call_tool("diagnose", {"paths": ["/no/such/place"]}),
            await client.call_tool("explain", {"words": "x", "shell": "rm"}),
        ]
        return tools, answers, wrong

    script, program = tmp_path / "run.sh", tmp_path / "train.py"
    script.write_text("export NCCL_SOKET_IFNAME=eth0\ntorchrun train.py\n")
    program.write_text("import torch.distributed as dist\nif dist.get_rank() == 0:\n    dist.barrier()\n")
    tools, answers, wrong = talk(conversation)
    assert set(tools) == {"diagnose", "explain", "env_lint", "lint", "compare", "collect"}
    assert [name for name, tool in tools.items() if not tool.annotations.read_only_hint] == ["collect"]
    for name, answer in answers.items():
        assert not answer.is_error, text(answer)
        jsonschema.validate(answer.structured_content, tools[name].output_schema)
    told = answers["diagnose"].structured_content["verdict"]
    assert (told["cause"], told["culprits"]["ranks"]) == ("conditional-collective", [2])
    assert "Rank 2" in text(answers["diagnose"])
    assert "fallen off the bus" in text(answers["explain"])
    assert "NCCL_SOKET_IFNAME" in text(answers["env_lint"])
    assert answers["lint"].structured_content["findings"][0]["evidence"][0]["locator"] == "line 3"
    assert [answer.is_error for answer in wrong] == [True, True]
    assert "no such file or folder" in text(wrong[0])


def test_what_writes_is_asked_twice(tmp_path: Path) -> None:
    environment = {**os.environ, "RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    rank = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], env=environment)
    wanted = {"pid": rank.pid, "out": str(tmp_path / "bundle")}

    async def conversation(client):
        first = await client.call_tool("collect", wanted)
        there = (tmp_path / "bundle").exists()
        code = first.structured_content["confirm"]
        made_up = await client.call_tool("collect", {**wanted, "confirm": "12345678"})
        other = await client.call_tool("collect", {**wanted, "out": str(tmp_path / "other"), "confirm": code})
        renewed = await client.call_tool("collect", wanted)
        done = await client.call_tool("collect", {**wanted, "confirm": renewed.structured_content["confirm"]})
        again = await client.call_tool("collect", {**wanted, "confirm": renewed.structured_content["confirm"]})
        return first, there, made_up, other, done, again

    try:
        first, there, made_up, other, done, again = talk(conversation)
    finally:
        rank.kill()
        rank.wait()
    assert not first.structured_content["done"]
    assert not there, "nothing is written before the second call"
    assert not made_up.structured_content["done"]
    assert not other.structured_content["done"], "a code is good for the arguments it was given for"
    assert not (tmp_path / "other").exists()
    assert done.structured_content["done"], text(done)
    assert (tmp_path / "bundle" / "manifest.json").exists()
    assert again.is_error, "the folder is there already"


def test_without_the_sdk_it_says_what_to_install(whichrank_process, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as u\nfind = u.find_spec\n"
        "u.find_spec = lambda name, package=None: None if name == 'mcp' else find(name, package)\n"
    )
    done = whichrank_process("mcp", PYTHONPATH=f"{tmp_path}:{ROOT / 'src'}")
    assert done.returncode == 2
    assert "pip install 'whichrank[mcp]'" in done.stderr
