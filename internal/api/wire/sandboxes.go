package wire

import (
	"context"
	"strings"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/domain/principal"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/guestnet"
)

// hostPID returns the process ID of a sandbox's VM. Only the operator may see host process IDs.
func hostPID(ctx context.Context, i sandbox.Info) int {
	if !principal.From(ctx).Operator() {
		return 0
	}
	return i.PID
}

// nodeKey is the context key for the name of the daemon's node.
type nodeKey struct{}

// WithNode returns a context in which sandboxes are shown with the name of the daemon's node.
func WithNode(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, nodeKey{}, name)
}

// Sandbox converts a sandbox as lists show it: without secrets.
func Sandbox(ctx context.Context, i sandbox.Info) api.SandboxInfo {
	node, _ := ctx.Value(nodeKey{}).(string)
	return api.SandboxInfo{
		ID: i.ID, DNSID: sandbox.DNSID(i.ID), SnapshotTag: i.SnapshotTag, Node: node,
		CreatedAtUnix: i.CreatedAt.Unix(), PID: Optional(hostPID(ctx, i)),
		Status: api.SandboxStatus(i.Status), Reason: i.Reason, Warning: i.Warning, RolledBackTo: i.RolledBackTo,
		LastOOM:      lastOOM(i.LastOOM),
		PromotedFrom: i.PromotedFrom,
		Labels:       i.Labels,
		PausedIn:     i.PausedIn, Cold: i.Cold, Life: life(i), Index: i.Index, Fork: i.Fork,
		Hostname: i.Hostname, Owner: i.Owner,
		OwnMemoryKiB: i.OwnMemory >> 10, MemoryMiB: i.Shape.MemoryMiB, VCPUs: i.Shape.VCPUs,
		GuestAddr: guestnet.Guest4.Addr().String(), Network: summary(i), PrivatePorts: i.PrivatePorts(),
		MemoryLimitMiB: Optional(i.Limits.MemoryMiB), SandboxLimits: limits(i.Limits), Use: use(i.Use),
		Secrets:   List(i.Secrets, heldSecret),
		Services:  List(i.Services, serviceState),
		Volumes:   List(i.Volumes, volumeMount),
		NetJoin:   netJoin(i.Network.Member),
		GuestFork: i.Kin.MayFork, Identity: i.Kin.Identity, ForkedBy: i.Kin.Parent, ForkDepth: i.Kin.Depth,
		Timings: &api.SandboxTimings{ArmedMS: Milliseconds(i.Armed), ResumedMS: Milliseconds(i.Resumed),
			ReadyMS: Milliseconds(i.Ready)},
	}
}

func lastOOM(o *sandbox.OOM) *api.SandboxOOM {
	if o == nil {
		return nil
	}
	return &api.SandboxOOM{PID: o.PID, Process: o.Process, At: o.At}
}

// SandboxWithToken is for answers about the client's own sandboxes, when it creates them or asks for
// one.
func SandboxWithToken(ctx context.Context, i sandbox.Info) api.SandboxInfo {
	out := Sandbox(ctx, i)
	out.TrafficToken, out.Agent = i.TrafficToken, guestAgent(i.Agent)
	return out
}

// Child returns the entry of one child in the answer to a fork.
func Child(ctx context.Context, c sandbox.Child, req sandbox.ForkRequest) api.SandboxInfo {
	var out api.SandboxInfo
	if c.Err == nil {
		out = SandboxWithToken(ctx, c.Info)
	} else {
		f := apierror.From(c.Err)
		out = api.SandboxInfo{
			SnapshotTag: req.Tag, Status: api.SandboxFailed, Index: c.Index, Error: f.Message, Code: f.Code,
		}
	}
	out.MemoryLimitMiB = Optional(req.Limits.MemoryMiB)
	if c.Err == nil && c.Info.Network.Warning != "" {
		out.Warning = strings.TrimPrefix(out.Warning+"; "+c.Info.Network.Warning, "; ")
	}
	return out
}

// DomainLimits converts the limits of a request.
func DomainLimits(in api.CreateSandboxesRequest) sandbox.Limits {
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

func limits(l sandbox.Limits) api.SandboxLimits {
	return api.SandboxLimits{
		CPUs: l.CPUs, CPUWeight: l.CPUWeight, DiskReadLimitMiB: l.DiskReadMiB, DiskWriteLimitMiB: l.DiskWriteMiB,
		DiskLimitMiB: l.DiskMiB, NetRateMiB: l.NetMiB,
		TreeMemoryLimitMiB: l.Tree.MemoryMiB, TreeCPUs: l.Tree.CPUs,
		TreePIDs: l.Tree.PIDs, TreeDiskLimitMiB: l.Tree.DiskMiB, TreeNetRateMiB: l.Tree.NetMiB,
	}
}

func use(u *sandbox.Use) *api.SandboxUse {
	if u == nil {
		return nil
	}
	return &api.SandboxUse{
		MemoryBytes: u.Memory, MemoryPeakBytes: u.Peak, CPUMS: Milliseconds(u.CPU), ThrottledMS: Milliseconds(u.Throttled),
		Threads: u.Threads, DiskReadBytes: u.DiskRead, DiskWrittenBytes: u.DiskWritten,
		NetInBytes: u.Net.In, NetOutBytes: u.Net.Out, NetLimitBytes: u.Net.Limit,
	}
}
