# SPDX-License-Identifier: Apache-2.0
"""Python imports this file at its start when its folder is on PYTHONPATH: `paceline record` puts it there.

It waits for torch to be imported and then hands over to ../paceline_hook.py. A sitecustomize of the user still runs.
"""
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _note(name):
    """Leaves word for the command that this was reached; one empty file for all processes."""
    folder = os.environ.get("PACELINE_RECORD_OUT")
    if folder:
        os.close(os.open(os.path.join(folder, ".notes", name), os.O_CREAT | os.O_WRONLY, 0o644))


class _Loader:
    """The loader of torch, followed by the hook."""

    def __init__(self, loader):
        self._loader = loader

    def __getattr__(self, name):
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        try:
            _note("torch")
            keep, sys.dont_write_bytecode = sys.dont_write_bytecode, True
            sys.path.insert(0, os.path.dirname(_HERE))
            try:
                import paceline_hook
            finally:
                sys.path.remove(os.path.dirname(_HERE))
                sys.dont_write_bytecode = keep
            paceline_hook.install(module)
        except Exception as error:  # the job goes on whatever happens here
            sys.stderr.write("paceline record: not recording this process: %r\n" % error)


class _Finder:
    """First in sys.meta_path until torch is found."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find else None
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader)
                return spec
        return None


def _run_next():
    """Runs the sitecustomize that this file stands in front of, as Python would have."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec
    here = os.path.realpath(_HERE)
    spec = PathFinder.find_spec(__name__, [entry for entry in sys.path if os.path.realpath(entry or ".") != here])
    if spec is not None and spec.loader is not None:
        sys.modules[__name__] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules[__name__])


if sys.version_info >= (3, 6):
    try:
        _note("python")
        sys.meta_path.insert(0, _Finder())
    except Exception as _error:
        sys.stderr.write("paceline record: not recording this process: %r\n" % _error)
    _run_next()
