"""Train PatchNet on CIFAR-10, and evaluate it after each epoch."""

import argparse

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

from model import PatchNet

MEAN = (0.4914, 0.4822, 0.4465)
STD = (0.2470, 0.2435, 0.2616)


def build_loaders(args):
    normalize = [transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
    augment = [transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip()]
    train_set = datasets.CIFAR10(
        args.data, train=True, download=True, transform=transforms.Compose(augment + normalize)
    )
    val_set = datasets.CIFAR10(args.data, train=False, transform=transforms.Compose(normalize))
    train_loader = DataLoader(
        train_set,
        batch_size=args.batch_size,
        shuffle=True,
        num_workers=args.workers,
        pin_memory=True,
        persistent_workers=args.workers > 0,
    )
    val_loader = DataLoader(val_set, batch_size=args.batch_size)
    return train_loader, val_loader


def mixup(images, labels, num_classes, device):
    """Blend each image with another one of the batch."""
    lam = torch.rand(images.size(0)).to(device)
    order = torch.randperm(images.size(0), device=device)
    targets = F.one_hot(labels, num_classes).float()
    blended = lam.view(-1, 1, 1, 1) * images + (1 - lam).view(-1, 1, 1, 1) * images[order]
    return blended, lam.view(-1, 1) * targets + (1 - lam).view(-1, 1) * targets[order]


def train_one_epoch(model, loader, optimizer, device, epoch, log_every):
    model.train()
    total_loss = 0.0
    losses = []
    class_counts = torch.zeros(10, device=device)
    for step, (images, labels) in enumerate(loader):
        images = images.to(device, non_blocking=True)
        labels = labels.to(device, non_blocking=True)
        class_counts += torch.bincount(labels, minlength=10)

        images, targets = mixup(images, labels, 10, device)
        smoothing = torch.zeros(targets.size(0), 10).to(device) + 0.01
        loss = F.cross_entropy(model(images), targets * 0.9 + smoothing)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

        losses.append(loss.item())
        total_loss += loss.item()
        if step % log_every == 0:
            print(f"epoch {epoch} step {step} loss {loss.item():.4f}")
    print(f"last loss {loss.item():.4f}, images per class {class_counts.tolist()}")
    return total_loss / len(loader), losses


def validate(model, loader, device):
    model.eval()
    total_loss = 0.0
    correct = 0
    predictions = torch.empty(0, dtype=torch.long, device=device)
    for images, labels in loader:
        images = images.to(device)
        labels = labels.to(device)
        logits = model(images)
        loss = F.cross_entropy(logits, labels)
        total_loss += loss
        correct += (logits.argmax(dim=1) == labels).sum()
        predictions = torch.cat([predictions, logits.argmax(dim=1)])
    accuracy = correct.item() / len(loader.dataset)
    return total_loss / len(loader), accuracy, predictions.cpu()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="data")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--log-every", type=int, default=50)
    args = parser.parse_args()

    torch.autograd.set_detect_anomaly(True)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = PatchNet().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    train_loader, val_loader = build_loaders(args)

    best = 0.0
    for epoch in range(args.epochs):
        train_loss, _ = train_one_epoch(model, train_loader, optimizer, device, epoch, args.log_every)
        val_loss, accuracy, _ = validate(model, val_loader, device)
        scheduler.step()
        print(f"epoch {epoch} train {train_loss:.4f} val {val_loss:.4f} accuracy {accuracy:.4f}")
        if accuracy > best:
            best = accuracy
            torch.save(model.state_dict(), "patchnet.pt")


if __name__ == "__main__":
    main()
