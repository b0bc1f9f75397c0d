package httpapi

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/domain/principal"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/guestnet"
	"github.com/forkd/forkd/internal/leaf/guesttext"
	"github.com/forkd/forkd/internal/leaf/retention"
)

// milliseconds keeps the microseconds as decimals.
func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// seconds converts a limit of a request. Validation limits it to a day.
func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// optional returns nil for a zero value.
func optional[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// list never returns nil, because a JSON list must be [], not null.
func list[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

func wireSnapshot(s sandbox.SnapshotInfo) api.SnapshotInfo {
	out := api.SnapshotInfo{
		Tag: s.Tag, Dir: s.Dir, CreatedAtUnix: s.CreatedAt.Unix(),
		BranchedFrom: optional(s.BranchedFrom), PauseMS: optional(milliseconds(s.Pause)), Transient: s.Transient,
		Status: api.SnapshotStatus(s.Status), Bootable: s.Status == sandbox.SnapshotReady,
		Warning: optional(s.Warning), ParentTag: optional(s.ParentTag),
		Image: s.Image, ImageDigest: s.ImageDigest,
		MemoryMiB: s.Shape.MemoryMiB, VCPUs: s.Shape.VCPUs,
		Owner: s.Owner, Public: s.Public,
		Network: wireDefault(s.Network), PrivatePorts: s.PrivatePorts, Labels: s.Labels,
		SizeBytes: s.MemoryOwnBytes + s.DiskOwnBytes + s.VMStateBytes, Languages: s.Languages,
	}
	out.Agent = wireAgent(s.Agent)
	if r, err := retention.Of(s.Labels, s.CreatedAt); err == nil {
		if out.Pinned = s.Pinned(); !r.Expires.IsZero() {
			at := r.Expires.Unix()
			out.ExpiresAt = &at
		}
	}
	out.FetchedBytes, out.FetchBytes = s.FetchedBytes, s.FetchBytes
	out.Secrets, out.Volumes = wires(s.Secrets, wireHeld), wires(s.Volumes, wireContained)
	if out.Damaged = s.Damaged; !s.VerifiedAt.IsZero() {
		at := s.VerifiedAt.Unix()
		out.VerifiedAtUnix = &at
	}
	for _, step := range s.Steps {
		if out.Timings == nil {
			out.Timings = api.Timings{}
		}
		out.Timings[step.Name] += milliseconds(step.Took)
	}
	return out
}

func wireAgent(a *sandbox.Agent) *api.GuestAgent {
	if a == nil {
		return nil
	}
	return &api.GuestAgent{Version: guesttext.Of(a.Version).String(), Capabilities: a.Capabilities,
		Outdated: a.Outdated, Replaceable: a.Replaceable}
}

func wireSnapshotDetail(s sandbox.SnapshotInfo) api.SnapshotDetail {
	return api.SnapshotDetail{
		SnapshotInfo:       wireSnapshot(s),
		MemoryLogicalBytes: s.MemoryLogicalBytes, MemoryPhysicalBytes: s.MemoryPhysicalBytes,
		MemoryOwnBytes: s.MemoryOwnBytes, DiskLogicalBytes: s.DiskLogicalBytes,
		DiskPhysicalBytes: s.DiskPhysicalBytes, DiskOwnBytes: s.DiskOwnBytes,
		VMStateBytes:      s.VMStateBytes,
		ParentContentHash: optional(s.ParentContentHash),
		ChainDepth:        s.ChainDepth(), Ancestors: list(s.Ancestors), Dependents: list(s.Dependents),
		KernelVersion: s.Kernel, Cmdline: s.Cmdline, ContentHash: s.ContentHash,
		DigestsReady: s.DigestsReady, Sandboxes: list(s.Sandboxes), CapturedBytes: s.CapturedBytes, CPU: wireCPU(s.CPU),
	}
}

func wireCPU(c *sandbox.CPU) *api.CPU {
	if c == nil {
		return nil
	}
	return &api.CPU{Vendor: c.Vendor, Family: c.Family, Model: c.Model, Stepping: c.Stepping, Features: list(c.Features)}
}

func wireVerify(r sandbox.VerifyReport) api.VerifyResult {
	out := api.VerifyResult{
		Tag: r.Tag, OK: r.OK(), Files: r.Files, Bytes: r.Bytes,
		Damaged: []api.Damage{}, TookMS: milliseconds(r.Took),
	}
	for _, d := range r.Damaged {
		out.Damaged = append(out.Damaged, api.Damage(d))
	}
	return out
}

func wireStep(s sandbox.Step) api.Step {
	return api.Step{Step: s.Name, Done: s.Done, TookMS: milliseconds(s.Took), Bytes: s.Bytes, Total: s.Total,
		Note: s.Note, Output: text(s.Output)}
}

// hostPID returns the process ID of a sandbox's VM. Only the operator may see host process IDs.
func hostPID(ctx context.Context, i sandbox.Info) int {
	if !principal.From(ctx).Operator() {
		return 0
	}
	return i.PID
}

// nodeKey is the context key for the name of the daemon's node.
type nodeKey struct{}

func withNode(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, nodeKey{}, name)
}

func wireSandbox(ctx context.Context, i sandbox.Info) api.SandboxInfo {
	node, _ := ctx.Value(nodeKey{}).(string)
	return api.SandboxInfo{
		ID: i.ID, DNSID: sandbox.DNSID(i.ID), SnapshotTag: i.SnapshotTag, Node: node,
		CreatedAtUnix: i.CreatedAt.Unix(), PID: optional(hostPID(ctx, i)),
		Status: api.SandboxStatus(i.Status), Reason: i.Reason, Warning: i.Warning, RolledBackTo: i.RolledBackTo,
		LastOOM:      wireOOM(i.LastOOM),
		PromotedFrom: i.PromotedFrom,
		Labels:       i.Labels,
		PausedIn:     i.PausedIn, Cold: i.Cold, Life: wireLife(i), Index: i.Index, Fork: i.Fork,
		Hostname: i.Hostname, Owner: i.Owner,
		OwnMemoryKiB: i.OwnMemory >> 10, MemoryMiB: i.Shape.MemoryMiB, VCPUs: i.Shape.VCPUs,
		GuestAddr: guestnet.Guest4.Addr().String(), Network: summary(i), PrivatePorts: i.PrivatePorts(),
		MemoryLimitMiB: optional(i.Limits.MemoryMiB), SandboxLimits: wireLimits(i.Limits), Use: wireUse(i.Use),
		Secrets:   wires(i.Secrets, wireHeld),
		Services:  wires(i.Services, wireServiceState),
		Volumes:   wires(i.Volumes, wireUsedVolume),
		NetJoin:   wireMember(i.Network.Member),
		GuestFork: i.Kin.MayFork, Identity: i.Kin.Identity, ForkedBy: i.Kin.Parent, ForkDepth: i.Kin.Depth,
		Timings: &api.SandboxTimings{ArmedMS: milliseconds(i.Armed), ResumedMS: milliseconds(i.Resumed),
			ReadyMS: milliseconds(i.Ready)},
	}
}

func wireOOM(o *sandbox.OOM) *api.SandboxOOM {
	if o == nil {
		return nil
	}
	return &api.SandboxOOM{PID: o.PID, Process: o.Process, At: o.At}
}

// wireWithToken is for answers about the client's own sandboxes, when it creates them or asks for
// one.
func wireWithToken(ctx context.Context, i sandbox.Info) api.SandboxInfo {
	out := wireSandbox(ctx, i)
	out.TrafficToken, out.Agent = i.TrafficToken, wireAgent(i.Agent)
	return out
}

// wireChild returns the entry of one child in the answer to a fork.
func wireChild(ctx context.Context, c sandbox.Child, req sandbox.ForkRequest) api.SandboxInfo {
	var out api.SandboxInfo
	if c.Err == nil {
		out = wireWithToken(ctx, c.Info)
	} else {
		f := apierror.From(c.Err)
		out = api.SandboxInfo{
			SnapshotTag: req.Tag, Status: api.SandboxFailed, Index: c.Index, Error: f.Message, Code: f.Code,
		}
	}
	out.MemoryLimitMiB = optional(req.Limits.MemoryMiB)
	if c.Err == nil && c.Info.Network.Warning != "" {
		out.Warning = strings.TrimPrefix(out.Warning+"; "+c.Info.Network.Warning, "; ")
	}
	return out
}

// domainLimits converts the limits of a request.
func domainLimits(in api.CreateSandboxesRequest) sandbox.Limits {
	l := in.SandboxLimits
	out := sandbox.Limits{
		CPUs: l.CPUs, CPUWeight: l.CPUWeight, DiskReadMiB: l.DiskReadLimitMiB, DiskWriteMiB: l.DiskWriteLimitMiB,
		DiskMiB: l.DiskLimitMiB, NetMiB: l.NetRateMiB,
		Tree: sandbox.TreeBudget{MemoryMiB: l.TreeMemoryLimitMiB, CPUs: l.TreeCPUs,
			PIDs: l.TreePIDs, DiskMiB: l.TreeDiskLimitMiB, NetMiB: l.TreeNetRateMiB},
	}
	if in.MemoryLimitMiB != nil {
		out.MemoryMiB = *in.MemoryLimitMiB
	}
	return out
}

func wireLimits(l sandbox.Limits) api.SandboxLimits {
	return api.SandboxLimits{
		CPUs: l.CPUs, CPUWeight: l.CPUWeight, DiskReadLimitMiB: l.DiskReadMiB, DiskWriteLimitMiB: l.DiskWriteMiB,
		DiskLimitMiB: l.DiskMiB, NetRateMiB: l.NetMiB,
		TreeMemoryLimitMiB: l.Tree.MemoryMiB, TreeCPUs: l.Tree.CPUs,
		TreePIDs: l.Tree.PIDs, TreeDiskLimitMiB: l.Tree.DiskMiB, TreeNetRateMiB: l.Tree.NetMiB,
	}
}

func wireUse(u *sandbox.Use) *api.SandboxUse {
	if u == nil {
		return nil
	}
	return &api.SandboxUse{
		MemoryBytes: u.Memory, MemoryPeakBytes: u.Peak, CPUMS: milliseconds(u.CPU), ThrottledMS: milliseconds(u.Throttled),
		Threads: u.Threads, DiskReadBytes: u.DiskRead, DiskWrittenBytes: u.DiskWritten,
		NetInBytes: u.Net.In, NetOutBytes: u.Net.Out, NetLimitBytes: u.Net.Limit,
	}
}

// text leaves invalid bytes to the JSON encoder, which replaces them.
func text(b []byte) string { return string(b) }

func wirePools(pools []sandbox.PoolStatus) []api.Pool {
	out := []api.Pool{}
	for _, p := range pools {
		out = append(out, api.Pool{
			Tag: p.Tag, MemoryMiB: p.Shape.MemoryMiB, VCPUs: p.Shape.VCPUs, Disks: p.Shape.Disks,
			Size: p.Wanted, Ready: p.Ready,
		})
	}
	slices.SortFunc(out, func(a, b api.Pool) int { return cmp.Compare(a.Tag, b.Tag) })
	return out
}

func wireImage(i Image) api.Image {
	return api.Image{
		Name: i.Name, Digest: i.Digest, SizeBytes: i.SizeBytes, CreatedAtUnix: i.CreatedAt.Unix(),
		KernelVersion: i.Kernel, MemoryMiB: i.MemoryMiB, VCPUs: i.VCPUs, Description: i.Description,
		Start: i.Start, Container: i.Container,
	}
}
