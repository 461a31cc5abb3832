"""The command guidellm without PyTorch, which would bring gigabytes of CUDA's libraries: of it guidellm needs what goes
through its data, in one process."""

import sys
import types
import typing

import datasets  # noqa: F401 (before there seems to be a torch)
import transformers  # noqa: F401

Item = typing.TypeVar("Item")


class IterableDataset(typing.Generic[Item]):
    pass


class DataLoader(typing.Generic[Item]):
    def __init__(self, dataset, collate_fn, **_):
        self.dataset, self.collate_fn = dataset, collate_fn

    def __iter__(self):
        return (self.collate_fn([item]) for item in self.dataset)


class Generator:
    def manual_seed(self, seed):
        pass


def module(name, **members):
    sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name]).update(members)
    return sys.modules[name]


data = module("torch.utils.data", get_worker_info=lambda: None, IterableDataset=IterableDataset)
module("torch", Generator=Generator, utils=module("torch.utils", data=data))
module("torch.utils.data.dataloader", DataLoader=DataLoader)
module("torch.utils.data.dataset", IterableDataset=IterableDataset)

from guidellm.cli import cli  # noqa: E402 (now it finds that torch)

if __name__ == "__main__":  # its workers import this file
    cli(prog_name="guidellm")
