"""What hostile code may try. Each attack returns "escaped" when it got what it wanted, as far as it can see that.

None does harm where the sandbox fails: signals are 0, processes end, and what is mounted lies over a folder of the test.
"""

from __future__ import annotations

# Name -> body of `attack`. PORT, FOLDER, PARENT and SECRET are replaced by the test.
ATTACKS = {
    "read a file outside": "return 'escaped' if open('/etc/passwd').read() else ''",
    "read a file by descriptor": "import os\nreturn 'escaped' if os.read(os.open('/etc/hostname', 0), 9) else ''",
    "list a folder": "import os\nreturn 'escaped' if os.listdir('/') else ''",
    "read the sources of ptopt": "import ptopt\nreturn 'escaped' if open(ptopt.__file__).read() else ''",
    "write a file": "open('FOLDER/escaped', 'w').write('x')\nreturn 'escaped'",
    "write to tmp": "open('/tmp/escaped', 'w').write('x')\nreturn 'escaped'",
    "remove a file": "import os\nos.unlink('FOLDER/kept')\nreturn 'escaped'",
    "symbolic link": "import os\nos.symlink('/etc/passwd', '/tmp/link')\nreturn 'escaped'",
    "hard link": "import os\nos.link('/etc/passwd', 'FOLDER/escaped')\nreturn 'escaped'",
    "change the mode of a file": "import os\nos.chmod('FOLDER/kept', 0o777)\nreturn 'escaped'",
    "connect": "import socket\nsocket.create_connection(('127.0.0.1', PORT), 1).send(b'x')\nreturn 'escaped'",
    "send a datagram": "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', PORT))\nreturn 'escaped'",
    "unix socket": "import socket\nsocket.socket(socket.AF_UNIX)\nreturn 'escaped'",
    "pair of sockets": "import socket\nsocket.socketpair()\nreturn 'escaped'",
    "fork": "import os\nif os.fork() == 0:\n    os._exit(0)\nreturn 'escaped'",
    "fork bomb": "import os\nchildren = [os.fork() or os._exit(0) for _ in range(200)]\nreturn 'escaped' if len(children) == 200 else ''",
    "run a program": "import subprocess\nsubprocess.run(['/bin/true'], check=True)\nreturn 'escaped'",
    "replace the process": "import os\nos.execv('/bin/true', ['true'])",
    "threads": "import threading\n[threading.Thread(target=print).start() for _ in range(100)]\nreturn 'escaped'",
    "memory bomb": "return 'escaped' if len(bytearray(6 << 30)) else ''",
    "memory bomb in steps": "kept = []\nwhile len(kept) < 6000:\n    kept.append(bytearray(b'x' * (1 << 20)))\nreturn 'escaped'",
    "memory bomb of tensors": "import torch\nreturn 'escaped' if torch.ones(2 << 30).sum() else ''",
    "infinite loop": "while True: pass",
    "infinite loop in C": "return 9 ** (9 ** 9)",
    "sleep": "import time\ntime.sleep(3600)",
    "signal to the parent": "import os\nos.kill(os.getppid(), 0)\nreturn 'escaped'",
    "signal to everyone": "import os\nos.kill(-1, 0)\nreturn 'escaped'",
    "signal to the group": "import os\nos.killpg(0, 0)\nreturn 'escaped'",
    "signal to the test": "import os\nos.kill(PARENT, 0)\nreturn 'escaped'",
    "leave the group": "import os\nos.setsid()\nreturn 'escaped'",
    "trace the parent": "import ctypes, os\nreturn 'escaped' if ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0) == 0 else ''",
    "memory of the parent": "import os\nreturn 'escaped' if open(f'/proc/{os.getppid()}/mem', 'rb') else ''",
    "memory of the parent by a call": (
        "import ctypes, os\nclass V(ctypes.Structure):\n    _fields_ = [('b', ctypes.c_void_p), ('n', ctypes.c_size_t)]\n"
        "b = ctypes.create_string_buffer(8)\nme, it = V(ctypes.addressof(b), 8), V(ctypes.addressof(b), 8)\n"
        "n = ctypes.CDLL(None).process_vm_readv(os.getppid(), ctypes.byref(me), 1, ctypes.byref(it), 1, 0)\n"
        "return 'escaped' if n > 0 else ''"
    ),
    "environment of the parent": "import os\nreturn 'escaped' if open(f'/proc/{os.getppid()}/environ').read() else ''",
    "own environment": "import os\nreturn 'escaped' if 'SECRET' in str(dict(os.environ)) or 'PTOPT' in str(dict(os.environ)) else ''",
    "become somebody else": "import os\nos.setuid(1)\nreturn 'escaped'",
    "new namespace": "import ctypes\nreturn 'escaped' if ctypes.CDLL(None).unshare(0x10000000) == 0 else ''",
    "mount": "import ctypes\nreturn 'escaped' if ctypes.CDLL(None).mount(b'x', b'FOLDER', b'tmpfs', 0, None) == 0 else ''",
    "change the root": "import os\nos.chroot('/tmp')\nreturn 'escaped'",
    "raise the limits": "import resource\nresource.setrlimit(resource.RLIMIT_AS, (-1, -1))\nreturn 'escaped'",
    "priority": "import os\nos.nice(-10)\nreturn 'escaped'",
    "loosen the filter": "import ctypes\nreturn 'escaped' if ctypes.CDLL(None).prctl(22, 0, 0, 0, 0) == 0 else ''",
    "load a library": "import ctypes\nctypes.CDLL('libcrypt.so.1')\nreturn 'escaped'",
    "load a pickle": "import torch\ntorch.load('FOLDER/kept', weights_only=False)\nreturn 'escaped'",
    "standard streams": "import sys\nprint('escaped' * 100000, file=sys.__stderr__)\nraise RuntimeError",
    "other descriptors": (
        "import os\nfor n in range(3, 64):\n    try: os.write(n, b'\\xff' * 64)\n    except OSError: pass\nraise RuntimeError"
    ),
    "unbounded output": "return ['x' * 1000] * (1 << 30)",
    "nested output": "out = []\nfor _ in range(100000):\n    out = [out]\nreturn out",
    "object with a hostile repr": (
        "class Evil(str):\n    def __str__(self): return 'escaped'\n    __repr__ = __reduce__ = __str__\nreturn Evil('x')"
    ),
    "leave without a word": "import os\nos._exit(0)",
    "exit": "raise SystemExit(0)",
    "at exit": "import atexit\natexit.register(lambda: open('FOLDER/escaped', 'w'))\nraise SystemExit",
    "crash": "import ctypes\nctypes.string_at(0)",
    "stack": "def f(): return f()\nreturn f()",
    "keyboard interrupt": "raise KeyboardInterrupt",
}  # fmt: skip

# Code with the same aims in forms that the check of the syntax tree must refuse.
REFUSED = {
    "import": "import os\n    return x",
    "dunder": "return x.__class__.__mro__",
    "frame of a generator": "return (i for i in [x]).gi_frame.f_back.f_globals",
    "frame of an exception": "try:\n        pass\n    except ValueError as e:\n        return e.__traceback__.tb_frame",
    "builtin": "return eval('1')",
    "getattr": "return getattr(x, 'data')",
    "globals": "return globals()",
    "module behind a module": "return torch.os.getcwd()",
    "module behind a function module": "return F.torch.load('x')",
    "torch.load": "return torch.load('x')",
    "torch.save": "torch.save(x, 'y')\n    return x",
    "torch.hub": "return torch.hub.load('a', 'b')",
    "torch.ops": "torch.ops.load_library('x')\n    return x",
    "from_file": "return torch.from_file('x')",
    "np.load": "return np.load('x')",
    "tofile": "x.numpy().tofile('y')\n    return x",
    "patch the comparison": "torch.allclose = lambda *a, **k: True\n    return x",
    "patch a method": "torch.Tensor.add = None\n    return x",
    "set a hook": "x.register_hook(print)\n    return x",
    "apply": "return x.apply_(abs)",
    "module as a value": "return [torch][0]",
    "alias of a module": "t = torch\n    return t.load('x')",
    "shadowed builtin": "f = lambda open: open\n    return open('/etc/passwd')",
    "shadowed import": "torch = x\n    return torch",
    "global": "global y\n    y = x\n    return y",
    "class": "class A:\n        pass\n    return x",
    "pattern": "match x:\n        case object(__class__=c):\n            return c",
    "generator": "yield x",
    "default that runs": "def g(a=open('x')):\n        return a\n    return x",
    "print": "print(x)\n    return x",
    "other device": "return x.to('cuda:0')",
    "pointer": "return x.data_ptr()",
    "seed": "torch.manual_seed(0)\n    return x",
    "threads": "torch.set_num_threads(64)\n    return x",
    "format": "return '{0.__class__}'.format(x)",
}
