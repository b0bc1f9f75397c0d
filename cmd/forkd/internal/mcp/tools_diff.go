package mcp

import (
	"context"

	"github.com/forkd/forkd/api"
)

type compare struct {
	Before string `json:"before" jsonschema:"snapshot to compare with"`
	After  string `json:"after" jsonschema:"snapshot to describe the differences of"`
	Limit  int    `json:"limit,omitempty" jsonschema:"most entries of each list, 1 to 200; 50 if absent"`
}

// diffFile is a file that differs.
type diffFile struct {
	Path      string   `json:"path"`
	SizeBytes int64    `json:"size_bytes"`
	What      []string `json:"what,omitempty" jsonschema:"what differs, of a changed file"`
}

type diffProcess struct {
	PID    int      `json:"pid"`
	Name   string   `json:"name"`
	Args   []string `json:"args,omitempty"`
	RSSKiB int64    `json:"rss_kib"`
}

type diffPackage struct {
	Name          string `json:"name"`
	Version       string `json:"version"`
	VersionBefore string `json:"version_before,omitempty"`
}

// counts are the numbers of all differences. Lists may be shorter.
type counts struct {
	Added    int  `json:"added"`
	Removed  int  `json:"removed"`
	Changed  int  `json:"changed"`
	Complete bool `json:"complete" jsonschema:"false if there was too much to look at"`
}

type difference struct {
	Before string `json:"before"`
	After  string `json:"after"`
	Files  struct {
		Counts  counts     `json:"counts"`
		Added   []diffFile `json:"added"`
		Removed []diffFile `json:"removed"`
		Changed []diffFile `json:"changed"`
	} `json:"files"`
	Processes struct {
		Counts  counts        `json:"counts"`
		Started []diffProcess `json:"started"`
		Ended   []diffProcess `json:"ended"`
	} `json:"processes"`
	Packages struct {
		Counts  counts        `json:"counts"`
		Added   []diffPackage `json:"added"`
		Removed []diffPackage `json:"removed"`
		Changed []diffPackage `json:"changed"`
	} `json:"packages"`
}

func addDiffTool(r *registry) {
	add(r, tool{name: "snapshot_diff", title: "Compare snapshots", about: "List the files, processes and packages that " +
		"differ between two snapshots. Branch a sandbox to compare its present state.", effect: reads},
		func(ctx context.Context, c call, in compare) (difference, error) {
			if in.Limit == 0 {
				in.Limit = 50
			}
			if in.Limit < 1 || in.Limit > maxListed {
				return difference{}, invalid("limit is out of range, want 1 to 200", "")
			}
			d, err := c.client.DiffSnapshots(ctx, in.Before, in.After, in.Limit)
			return differenceOf(d), err
		})
}

func differenceOf(d api.SnapshotDiff) difference {
	out := difference{Before: d.Before, After: d.After}
	f := &out.Files
	f.Counts = counts(d.Files.DiffCounts)
	f.Added, f.Removed = each(d.Files.Added, fileOf), each(d.Files.Removed, fileOf)
	f.Changed = each(d.Files.Changed, func(e api.FileChange) diffFile { return diffFile{e.Path, e.SizeBytes, e.What} })
	p := &out.Processes
	p.Counts = counts(d.Processes.DiffCounts)
	p.Started, p.Ended = each(d.Processes.Started, processOf), each(d.Processes.Ended, processOf)
	k := &out.Packages
	k.Counts = counts(d.Packages.DiffCounts)
	k.Added, k.Removed = each(d.Packages.Added, packageOf), each(d.Packages.Removed, packageOf)
	k.Changed = each(d.Packages.Changed, func(e api.PackageChange) diffPackage {
		return diffPackage{e.Name, e.Version, e.VersionBefore}
	})
	return out
}

func fileOf(e api.FileEntry) diffFile { return diffFile{Path: e.Path, SizeBytes: e.SizeBytes} }

func processOf(e api.ProcessEntry) diffProcess { return diffProcess{e.PID, e.Name, e.Args, e.RSSKiB} }

func packageOf(e api.PackageEntry) diffPackage { return diffPackage{Name: e.Name, Version: e.Version} }

// each converts the entries of a list. The result is not nil, because null is no list for clients.
func each[A, B any](in []A, convert func(A) B) []B {
	out := make([]B, 0, len(in))
	for _, e := range in {
		out = append(out, convert(e))
	}
	return out
}
