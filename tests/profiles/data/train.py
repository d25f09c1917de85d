"""Writes the traces beside it: two steps of a real run on the CPU that waits for its loader, or for Python.

python tests/profiles/data/train.py data tests/profiles/data/data.json.gz
python tests/profiles/data/train.py host tests/profiles/data/host.json.gz
"""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset):
    def __init__(self, seconds):
        self.x = torch.randn(64, 32)
        self.seconds = seconds

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        time.sleep(self.seconds)
        return self.x[index], index % 4


class Chatty(nn.Module):
    def __init__(self, rounds):
        super().__init__()
        self.first = nn.Linear(32, 64)
        self.last = nn.Linear(64, 4)
        self.rounds = rounds

    def forward(self, x):
        hidden = torch.relu(self.first(x))
        total = 0
        for number in range(self.rounds):
            total += number * number
        return self.last(hidden)


def train(model, loader, optimizer, profiler):
    losses = 0.0
    for number, (x, y) in enumerate(loader):
        output = model(x)
        loss = nn.functional.cross_entropy(output, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses += loss.item()
        if number == 3:
            break
        profiler.step()
    return losses


def main(kind, path):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Chatty(rounds=200_000 if kind == "host" else 0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(Slow(0.003 if kind == "data" else 0.0), batch_size=4)
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=2)
    cpu = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=cpu, schedule=schedule, with_stack=True) as profiler:
        train(model, loader, optimizer, profiler)
    profiler.export_chrome_trace(path)


if __name__ == "__main__":
    main(*sys.argv[1:])
