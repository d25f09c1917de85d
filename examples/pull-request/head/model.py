"""A small image classifier: a convolutional stem, then attention over the patches."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x):
        return torch.relu(x + self.conv(x))


class PatchAttention(nn.Module):
    def __init__(self, dim, num_heads=4, dropout=0.1):
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = dim // num_heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        batch, length, dim = x.shape
        qkv = self.qkv(x).view(batch, length, 3, self.num_heads, self.head_dim)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(self.head_dim)
        weights = F.softmax(scores, dim=-1)
        weights = self.dropout(weights)
        out = torch.matmul(weights, v)
        return self.proj(out.transpose(1, 2).reshape(batch, length, dim))


class PatchNet(nn.Module):
    def __init__(self, num_classes=10, channels=64):
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, stride=2, padding=1)
        self.blocks = nn.Sequential(Residual(channels), Residual(channels))
        self.norm = nn.LayerNorm(channels)
        self.attention = PatchAttention(channels)
        self.head = nn.Linear(channels, num_classes)

    def forward(self, images):
        x = self.blocks(self.stem(images))
        x = x.flatten(2).transpose(1, 2)
        x = x + self.attention(self.norm(x))
        return self.head(x.mean(dim=1))
