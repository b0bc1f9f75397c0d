"""What is added to IPython's kernel: E2B's formats of results, and what a clone must renew.

Nothing is imported here that user code has not asked for: numpy, pandas, matplotlib and Pillow
are recognised when they come.
"""
import importlib.abc
import importlib.machinery
import math
import os
import struct
import sys
import types
from datetime import date, datetime

MOST = 64  # levels of a value's json

hooks = []


# Results

def load_ipython_extension(ip):
    from IPython.core.formatters import BaseFormatter
    from traitlets import ObjectName, Unicode

    class Data(BaseFormatter):
        format_type = Unicode("e2b/data")
        print_method = ObjectName("_repr_e2b_data_")
        _return_type = dict

    class Chart(BaseFormatter):
        format_type = Unicode("e2b/chart")
        print_method = ObjectName("_repr_e2b_chart_")
        _return_type = dict

        def __call__(self, obj):
            # Not for_type: the inline backend takes figures out of every formatter when it starts.
            matplotlib = sys.modules.get("matplotlib.figure")
            if self.enabled and matplotlib is not None and isinstance(obj, matplotlib.Figure):
                return figure(obj)
            return super().__call__(obj)

    formatters = ip.display_formatter.formatters
    data, chart = Data(parent=ip.display_formatter), Chart(parent=ip.display_formatter)
    data.for_type_by_name("pandas.core.frame", "DataFrame", frame)
    data.for_type_by_name("pandas", "DataFrame", frame)  # its module's name since pandas 3
    formatters[data.format_type], formatters[chart.format_type] = data, chart
    json = formatters["application/json"]
    for t in (dict, list):
        json.for_type(t, plain)
    ip.display_formatter.active_types = list(formatters)
    sys.modules["forkd_guest"] = guest()
    sys.meta_path.insert(0, PillowFinder())
    if "PIL.Image" in sys.modules:
        show_images(sys.modules["PIL.Image"])


def frame(df):
    return {str(name): [plain(v) for v in df.iloc[:, i].tolist()] for i, name in enumerate(df.columns)}


def figure(fig):
    try:
        from e2b_charts import chart_figure_to_dict
        chart = chart_figure_to_dict(fig)
    except Exception:  # a figure that it does not know is shown without
        return None
    return plain(chart) if chart else None


def plain(value, depth=0):
    """value in what JSON has: no NaN, no objects, no cycles."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if depth >= MOST:
        return "..."
    if isinstance(value, dict):
        return {str(k): plain(v, depth + 1) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(v, depth + 1) for v in value]
    if isinstance(value, (date, datetime)):
        text = value.isoformat()
        return None if text == "NaT" else text
    np = sys.modules.get("numpy")
    if np is not None and isinstance(value, np.generic):
        return plain(value.item(), depth + 1)
    if np is not None and isinstance(value, np.ndarray):
        return plain(value.tolist(), depth + 1)
    return repr(value) if not str(value) else str(value)


class PillowFinder(importlib.abc.MetaPathFinder):
    """Has PIL.Image show images here as soon as it is imported."""

    def find_spec(self, name, path, target=None):
        if name != "PIL.Image":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return None
        sys.meta_path.remove(self)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            show_images(module)

        spec.loader.exec_module = exec_module
        return spec


def show_images(module):
    from IPython.display import display
    save = module.Image.save

    def show_here(self, *args, **kwargs):
        display(self)

    def save_and_show(self, fp, *args, **kwargs):
        caller = sys._getframe(1).f_globals.get("__name__", "")
        save(self, fp, *args, **kwargs)
        # Pillow, matplotlib and IPython save images for purposes of their own.
        if not caller.startswith(("PIL.", "matplotlib", "IPython")):
            display(self)

    module.Image.show, module.Image.save = show_here, save_and_show


# Environment

def environ(values, remove):
    os.environ.update(values)
    for key in remove:
        os.environ.pop(key, None)


def chdir(cwd):
    os.chdir(cwd)


# Executions

def forget():
    """Makes the next execution the first one, and forgets the inputs and outputs of those before."""
    ip = sys.modules["IPython"].get_ipython()
    ip.history_manager.reset(new_session=False)
    for name in list(ip.user_ns):
        if name[:1] == "_" and (name[1:].isdigit() or name[1:2] == "i" and name[2:].isdigit()):
            del ip.user_ns[name]
    ip.displayhook._ = ip.displayhook.__ = ip.displayhook.___ = ""
    history = ip.history_manager
    history.input_hist_parsed[:] = history.input_hist_raw[:] = [""]
    names = dict(_="", __="", ___="", _i="", _ii="", _iii="", In=history.input_hist_parsed,
                 _ih=history.input_hist_parsed, Out=history.output_hist, _oh=history.output_hist)
    ip.push(names, interactive=False)
    ip.execution_count = 1


# Clones

def guest():
    module = types.ModuleType("forkd_guest", "What code in a forkd guest can ask for.")
    module.on_fork = on_fork
    return module


def on_fork(func):
    """Call func(info) in every clone, before the code that is run there first."""
    hooks.append(func)
    return func


def renew(seed, env, info):
    """Makes this kernel differ from those it was copied with. seed is the clone's own."""
    os.environ.update(env)
    seed = bytes.fromhex(seed)
    steps = [seed_random, seed_numpy, seed_openssl, seed_torch, renew_tempfile, renew_uuid]
    errors = []
    for step in steps:
        try:
            step(seed)
        except Exception as e:
            errors.append("%s: %s" % (step.__name__, e))
    for hook in hooks:
        try:
            hook(dict(info))
        except Exception as e:
            errors.append("on_fork: %s" % e)
    if errors:
        print("forkd: " + "; ".join(errors), file=sys.__stderr__, flush=True)


def seed_random(seed):
    if "random" in sys.modules:
        sys.modules["random"].seed(seed)


def seed_numpy(seed):
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed(list(struct.unpack(">%dI" % (len(seed) // 4), seed)))


def seed_openssl(seed):
    if "_ssl" in sys.modules:
        sys.modules["_ssl"].RAND_add(seed, float(len(seed)))


def seed_torch(seed):
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(int.from_bytes(seed[:8], "big") >> 1)


def renew_tempfile(seed):
    m = sys.modules.get("tempfile")
    if m is not None and getattr(m, "_name_sequence", None) is not None:
        m._name_sequence = None


def renew_uuid(seed):
    m = sys.modules.get("uuid")
    if m is not None:
        m._node = m._last_timestamp = None
