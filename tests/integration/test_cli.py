"""What `moestro` does where its input or output fails; no node is needed."""

import resource

import pytest


@pytest.mark.no_sanitizer(reason="shadow memory needs more address space")
def test_an_exception_is_one_line(cli):
    def limit_memory():
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))

    result = cli("generate", "--prompt-file", "/dev/zero", check=False, preexec_fn=limit_memory)
    assert (result.returncode, result.stderr) == (3, "moestro: out of memory\n")


def test_chat_takes_lines_of_utf8(cli):
    result = cli("chat", "--server", "127.0.0.1:1", check=False, input="na\udcefve\n", errors="surrogateescape")
    assert result.returncode == 2 and "the line on stdin: not valid UTF-8 at byte 2" in result.stderr
