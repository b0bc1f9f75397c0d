package wire

import (
	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/guesttext"
	"github.com/forkd/forkd/internal/leaf/retention"
)

// Snapshot converts a snapshot as lists show it.
func Snapshot(s sandbox.SnapshotInfo) api.SnapshotInfo {
	out := api.SnapshotInfo{
		Tag: s.Tag, Dir: s.Dir, CreatedAtUnix: s.CreatedAt.Unix(),
		BranchedFrom: Optional(s.BranchedFrom), PauseMS: Optional(Milliseconds(s.Pause)), Transient: s.Transient,
		Status: api.SnapshotStatus(s.Status), Bootable: s.Status == sandbox.SnapshotReady,
		Warning: Optional(s.Warning), ParentTag: Optional(s.ParentTag),
		Image: s.Image, ImageDigest: s.ImageDigest,
		MemoryMiB: s.Shape.MemoryMiB, VCPUs: s.Shape.VCPUs,
		Owner: s.Owner, Public: s.Public,
		Network: defaultPolicy(s.Network), PrivatePorts: s.PrivatePorts, Labels: s.Labels,
		SizeBytes: s.MemoryOwnBytes + s.DiskOwnBytes + s.VMStateBytes, Languages: s.Languages,
	}
	out.Agent = guestAgent(s.Agent)
	if r, err := retention.Of(s.Labels, s.CreatedAt); err == nil {
		if out.Pinned = s.Pinned(); !r.Expires.IsZero() {
			at := r.Expires.Unix()
			out.ExpiresAt = &at
		}
	}
	out.FetchedBytes, out.FetchBytes = s.FetchedBytes, s.FetchBytes
	out.Secrets, out.Volumes = List(s.Secrets, heldSecret), List(s.Volumes, containedVolume)
	if out.Damaged = s.Damaged; !s.VerifiedAt.IsZero() {
		at := s.VerifiedAt.Unix()
		out.VerifiedAtUnix = &at
	}
	for _, step := range s.Steps {
		if out.Timings == nil {
			out.Timings = api.Timings{}
		}
		out.Timings[step.Name] += Milliseconds(step.Took)
	}
	return out
}

func guestAgent(a *sandbox.Agent) *api.GuestAgent {
	if a == nil {
		return nil
	}
	return &api.GuestAgent{Version: guesttext.Of(a.Version).String(), Capabilities: a.Capabilities,
		Outdated: a.Outdated, Replaceable: a.Replaceable}
}

// SnapshotDetail converts a snapshot with its sizes and its lineage.
func SnapshotDetail(s sandbox.SnapshotInfo) api.SnapshotDetail {
	return api.SnapshotDetail{
		SnapshotInfo:       Snapshot(s),
		MemoryLogicalBytes: s.MemoryLogicalBytes, MemoryPhysicalBytes: s.MemoryPhysicalBytes,
		MemoryOwnBytes: s.MemoryOwnBytes, DiskLogicalBytes: s.DiskLogicalBytes,
		DiskPhysicalBytes: s.DiskPhysicalBytes, DiskOwnBytes: s.DiskOwnBytes,
		VMStateBytes:      s.VMStateBytes,
		ParentContentHash: Optional(s.ParentContentHash),
		ChainDepth:        s.ChainDepth(), Ancestors: NotNil(s.Ancestors), Dependents: NotNil(s.Dependents),
		KernelVersion: s.Kernel, Cmdline: s.Cmdline, ContentHash: s.ContentHash,
		DigestsReady: s.DigestsReady, Sandboxes: NotNil(s.Sandboxes), CapturedBytes: s.CapturedBytes, CPU: cpu(s.CPU),
	}
}

func cpu(c *sandbox.CPU) *api.CPU {
	if c == nil {
		return nil
	}
	return &api.CPU{Vendor: c.Vendor, Family: c.Family, Model: c.Model, Stepping: c.Stepping, Features: NotNil(c.Features)}
}

// Step converts a step of a snapshot's creation.
func Step(s sandbox.Step) api.Step {
	return api.Step{Step: s.Name, Done: s.Done, TookMS: Milliseconds(s.Took), Bytes: s.Bytes, Total: s.Total,
		Note: s.Note, Output: Text(s.Output)}
}
