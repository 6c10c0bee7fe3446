"""What NVIDIA's management library says of the devices, called directly: nvidia-smi would cost a process each time."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import NamedTuple

_TEMPERATURE_OF_DEVICE = 0
_MOST_PROCESSES = 64
_LIBRARY = "libnvidia-ml.so.1"


class DeviceUse(NamedTuple):
    """Utilisation in percent, memory in bytes, temperature in degrees Celsius; None where the device does not say."""

    util: float | None = None
    memory: int | None = None
    memory_total: int | None = None
    temperature: float | None = None


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _Process(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("memory", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class Devices:
    """The devices with the given UUIDs, in that order; without the library or a device, empty answers."""

    def __init__(self, uuids: Sequence[str]) -> None:
        self._library = _load() if uuids else None
        self._uuids = uuids
        self._handles = [self._handle(uuid) for uuid in uuids]

    def use(self) -> list[DeviceUse]:
        return [self._use(handle) if handle else DeviceUse() for handle in self._handles]

    def users(self) -> dict[int, frozenset[str]]:
        """Process -> the UUIDs of the devices on which it has a context; in a container the driver may not tell."""
        found: dict[int, set[str]] = {}
        for uuid, handle in zip(self._uuids, self._handles, strict=True):
            for pid in self._pids(handle) if handle else ():
                found.setdefault(pid, set()).add(uuid)
        return {pid: frozenset(uuids) for pid, uuids in found.items()}

    def _pids(self, handle: ctypes.c_void_p) -> list[int]:
        assert self._library is not None
        count, processes = ctypes.c_uint(_MOST_PROCESSES), (_Process * _MOST_PROCESSES)()
        try:
            read = self._library.nvmlDeviceGetComputeRunningProcesses_v3
        except AttributeError:  # a driver before 510
            return []
        status = read(handle, ctypes.byref(count), processes)
        return [process.pid for process in processes[: count.value]] if status == 0 else []

    def _handle(self, uuid: str) -> ctypes.c_void_p | None:
        handle = ctypes.c_void_p()
        if self._library is None:
            return None
        found = self._library.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(handle))
        return handle if found == 0 else None

    def _use(self, handle: ctypes.c_void_p) -> DeviceUse:
        assert self._library is not None
        utilization, memory, temperature = _Utilization(), _Memory(), ctypes.c_uint()
        read = self._library
        has_use = read.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(utilization)) == 0
        has_memory = read.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) == 0
        has_heat = read.nvmlDeviceGetTemperature(handle, _TEMPERATURE_OF_DEVICE, ctypes.byref(temperature)) == 0
        return DeviceUse(
            float(utilization.gpu) if has_use else None,
            memory.used if has_memory else None,
            memory.total if has_memory else None,
            float(temperature.value) if has_heat else None,
        )


def _load() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError:
        return None
    return library if library.nvmlInit_v2() == 0 else None
