"""PyTorch's side of the example torch-ipc: for each line of standard input, a JSON object
with a request, it does what is asked and answers with a JSON object on a line.

What begins with an underscore is PyTorch's private interface, which may change."""

import base64
import json
import os
import sys

answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # whatever else prints does so on standard error


def answer(**fields):
    print(json.dumps(fields), file=answers, flush=True)


def text(b):
    return base64.b64encode(b).decode()


try:
    import torch
except ImportError as e:
    answer(error=f"there is no PyTorch in {sys.executable}: {e}")
    sys.exit(1)
if not torch.cuda.is_available():
    answer(error=f"PyTorch {torch.__version__} sees no CUDA device")
    sys.exit(1)

device = torch.device("cuda", 0)
uuid = str(torch.cuda.get_device_properties(device).uuid).removeprefix("GPU-")
torch.cuda.set_stream(torch.cuda.Stream(device))
kept = {}

# CUDA loads a kernel when it is first used, and may wait for the device's work then. So
# those that are to come behind long work are used once now.
torch.cuda._sleep(1)
torch.arange(1 << 20, out=torch.empty(1 << 20, device=device)).mul_(3)
torch.cuda.synchronize(device)


def share(elements, cycles):
    """Makes a tensor that is filled behind long work, and gives its handles out."""
    kept["allocated"] = torch.cuda.memory_allocated(device)
    # Something else lies in front of it, in the same block of PyTorch's allocator and
    # in the same storage.
    kept["other"] = torch.empty(1 << 20, device=device)
    tensor = torch.full((elements + 64,), -1.0, device=device)[64:]
    # _share_cuda_ records an event too, but now, and not behind what follows.
    _, handle, size, offset, counter, index, _, _ = tensor.untyped_storage()._share_cuda_()
    torch.cuda.synchronize(device)
    torch.cuda._sleep(cycles)
    torch.arange(elements, out=tensor)
    ready = torch.cuda.Event(interprocess=True)
    ready.record()
    kept.update(tensor=tensor, ready=ready)  # for as long as the other process uses them
    return {
        "handle": text(handle),
        "size": size,
        "offset": offset,
        "counter": counter.decode(),
        "counter_index": index,
        "storage_offset": tensor.storage_offset(),
        "shape": list(tensor.shape),
        "contiguous": tensor.is_contiguous(),
        "dtype": str(tensor.dtype),
        "event": text(ready.ipc_handle()),
    }


def check(event):
    """Counts the elements that are not what the other process should have made of them."""
    done = torch.cuda.Event.from_ipc_handle(device, bytes.fromhex(event["handle"]))
    pending = not done.query()
    done.wait()  # the current stream does
    tensor = kept["tensor"]
    expected = torch.arange(tensor.numel(), dtype=tensor.dtype, device=device) * 2 + 1
    return {"pending": pending, "wrong": int((tensor != expected).sum())}


def forget():
    """Drops the tensor, and says how many of its bytes PyTorch still keeps for the other process."""
    torch.cuda.synchronize(device)
    kept.pop("tensor"), kept.pop("ready"), kept.pop("other")
    torch.cuda.ipc_collect()
    return {"kept": torch.cuda.memory_allocated(device) - kept.pop("allocated")}


def receive(memory, event, cycles):
    """Opens float32 memory of another process, checks it and multiplies it by 3 behind long work."""
    if memory["device"] != "GPU-" + uuid:
        raise RuntimeError(f"the memory is on {memory['device']}, and PyTorch's device 0 is GPU-{uuid}")
    ready = torch.cuda.Event.from_ipc_handle(device, bytes.fromhex(event["handle"]))
    pending = not ready.query()
    storage = torch.UntypedStorage._new_shared_cuda(
        device.index,
        b"\x01c" + bytes.fromhex(memory["handle"]),  # a version, a type, and CUDA's handle
        memory["size"],
        memory["offset"],
        b"/nothing", 0,  # there is no counter of PyTorch's for it
        bytes(64), False,  # nor an event to wait for at once
    )
    tensor = torch.tensor([], dtype=torch.float32, device=device).set_(storage)
    ready.wait()  # the current stream does
    expected = torch.arange(tensor.numel(), dtype=tensor.dtype, device=device) * 2 + 1
    wrong = int((tensor != expected).sum())
    torch.cuda._sleep(cycles)
    tensor.mul_(3)
    done = torch.cuda.Event(interprocess=True)
    done.record()
    kept.update(tensor=tensor, ready=ready, done=done)
    return {"pending": pending, "wrong": wrong, "event": text(done.ipc_handle())}


def release():
    """Lets go of the other process's memory."""
    torch.cuda.synchronize(device)
    kept.clear()
    return {}


answer(pid=os.getpid(), torch=torch.__version__, uuid=uuid)
for line in sys.stdin:
    request = json.loads(line)
    try:
        reply = globals()[request.pop("do")](**request)
    except Exception as e:
        reply = {"error": f"{type(e).__name__}: {e}"}
    answer(**reply)
