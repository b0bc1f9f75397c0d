package snapshots

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/reply"
	"github.com/forkd/forkd/internal/api/requestinfo"
	"github.com/forkd/forkd/internal/api/routing"
	"github.com/forkd/forkd/internal/api/wire"
	"github.com/forkd/forkd/internal/domain/roles"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/guestdelta"
	"github.com/forkd/forkd/internal/leaf/membudget"
)

type diffInput struct {
	routing.TagPath
	Other string `path:"other" doc:"Name of the snapshot to compare with it"`
	Limit int    `query:"limit" doc:"How long each list may be; 0 means 1000" minimum:"0" maximum:"10000"`
}

type diffRoutes struct{ engine routing.Part[roles.Diffs] }

func (s *diffRoutes) add(rt *routing.Router) {
	routing.Route(rt, huma.Operation{
		OperationID: "diff-snapshots", Method: http.MethodGet, Path: "/v1/snapshots/{tag}/diff/{other}",
		Tags:        []string{"snapshots"},
		Summary:     "Compare two snapshots: files, processes and their memory, packages",
		Description: "The daemon restores a child of each, lists its content, and ends it.",
		Errors:      []int{400, 401, 404, 409, 502, 503, 504},
	}, s.diffSnapshots)
}

func (s *diffRoutes) diffSnapshots(ctx context.Context, in *diffInput) (*routing.Body[api.SnapshotDiff], error) {
	requestinfo.From(ctx).Snapshot = in.Tag
	if membudget.From(ctx).Full(routing.LeastOutput) {
		return nil, reply.Full()
	}
	d, err := s.engine(ctx).DiffSnapshots(ctx, sandbox.DiffRequest{Before: in.Tag, After: in.Other, Limit: in.Limit})
	if err != nil {
		return nil, err
	}
	return routing.Answer(wireDiff(d)), nil
}

func wireDiff(d sandbox.SnapshotDiff) api.SnapshotDiff {
	return api.SnapshotDiff{
		Before: d.Before, After: d.After, TookMS: wire.Milliseconds(d.Took),
		Files: api.FileDiff{
			DiffCounts: wireCounts(d.Files.Counts, d.Files.Complete), Compared: d.Files.Compared,
			Added: wire.List(d.Files.Added, wireFile), Removed: wire.List(d.Files.Removed, wireFile),
			Changed: wire.List(d.Files.Changed, wireFileChange),
		},
		Processes: api.ProcessDiff{
			DiffCounts: wireCounts(d.Processes.Counts, d.Processes.Complete),
			Started:    wire.List(d.Processes.Started, wireProcess), Ended: wire.List(d.Processes.Ended, wireProcess),
			Changed: wire.List(d.Processes.Changed, wireProcessChange),
		},
		Packages: api.PackageDiff{
			DiffCounts: wireCounts(d.Packages.Counts, d.Packages.Complete),
			Added:      wire.List(d.Packages.Added, wirePackage), Removed: wire.List(d.Packages.Removed, wirePackage),
			Changed: wire.List(d.Packages.Changed, wirePackageChange),
		},
	}
}

func wireCounts(c guestdelta.Counts, complete bool) api.DiffCounts {
	return api.DiffCounts{Added: c.Added, Removed: c.Removed, Changed: c.Changed, Complete: complete}
}

func wireFile(f guestdelta.File) api.FileEntry {
	return api.FileEntry{Path: f.Path, Mode: f.Mode.String(), SizeBytes: f.Size, Target: f.Target}
}

func wireFileChange(c guestdelta.FileChange) api.FileChange {
	return api.FileChange{FileEntry: wireFile(c.After), What: c.What, ModeBefore: c.Before.Mode.String(),
		SizeBytesBefore: c.Before.Size}
}

func wireProcess(p guestdelta.Process) api.ProcessEntry {
	return api.ProcessEntry{
		PID: p.PID, PPID: p.PPID, UID: p.UID, Name: p.Name, Args: wire.NotNil(p.Args),
		RSSKiB: p.Memory.RSS, PSSKiB: p.Memory.PSS, AnonKiB: p.Memory.Anon,
	}
}

func wireProcessChange(c guestdelta.ProcessChange) api.ProcessChange {
	return api.ProcessChange{
		ProcessEntry: wireProcess(c.Process), RSSKiBBefore: c.Before.RSS, PSSKiBBefore: c.Before.PSS,
		AnonKiBBefore: c.Before.Anon,
	}
}

func wirePackage(p guestdelta.Package) api.PackageEntry { return api.PackageEntry(p) }

func wirePackageChange(c guestdelta.PackageChange) api.PackageChange {
	return api.PackageChange{PackageEntry: wirePackage(c.Package), VersionBefore: c.Before}
}
