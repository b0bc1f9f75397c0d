package e2bapi

import (
	"cmp"
	"crypto/sha256"
	"net/http"
	"time"

	"github.com/forkd/forkd/internal/api/e2bapi/build"
	"github.com/forkd/forkd/internal/api/e2bapi/templates"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// templateInfo describes a snapshot as a template.
type templateInfo struct {
	ID          string     `json:"templateID"`
	Build       string     `json:"buildID"`
	CPUs        int        `json:"cpuCount"`
	MemoryMB    int        `json:"memoryMB"`
	DiskMB      int        `json:"diskSizeMB"`
	Public      bool       `json:"public"`
	Aliases     []string   `json:"aliases"`
	Names       []string   `json:"names"`
	Created     time.Time  `json:"createdAt"`
	Updated     time.Time  `json:"updatedAt"`
	CreatedBy   *string    `json:"createdBy"`
	LastSpawned *time.Time `json:"lastSpawnedAt"`
	Spawned     int        `json:"spawnCount"`
	Builds      int        `json:"buildCount"`
	EnvdVersion string     `json:"envdVersion"`
	Status      string     `json:"buildStatus"`
}

// templateDetail is a template with its builds.
type templateDetail struct {
	templateInfo
	All []buildInfo `json:"builds"`
}

type buildInfo struct {
	ID       string       `json:"buildID"`
	Status   build.Status `json:"status"`
	Created  time.Time    `json:"createdAt"`
	Updated  time.Time    `json:"updatedAt"`
	Finished *time.Time   `json:"finishedAt,omitempty"`
	CPUs     int          `json:"cpuCount"`
	MemoryMB int          `json:"memoryMB"`
}

func detailed(t templateInfo, made []build.Build) templateDetail {
	d := templateDetail{t, []buildInfo{}}
	for _, b := range made {
		info := buildInfo{ID: b.ID, Status: b.Status, Created: b.Requested.UTC(), Updated: b.Requested.UTC(),
			CPUs: cmp.Or(b.CPUs, t.CPUs), MemoryMB: cmp.Or(b.MemoryMiB, t.MemoryMB)}
		if !b.Finished.IsZero() {
			at := b.Finished.UTC()
			info.Finished, info.Updated = &at, at
		}
		d.All = append(d.All, info)
	}
	return d
}

func shownTemplate(c call, s sandbox.SnapshotInfo) templateInfo {
	status := "ready"
	switch s.Status {
	case sandbox.SnapshotFailed:
		status = "error"
	case sandbox.SnapshotWriting:
		status = "building"
	}
	return templateInfo{
		ID: s.Tag, Build: snapshotBuildID(s), CPUs: max(s.Shape.VCPUs, 1), MemoryMB: s.Shape.MemoryMiB,
		DiskMB: int(s.DiskLogicalBytes >> 20), Public: s.Public,
		Aliases: []string{c.short(s.Tag)}, Names: []string{templates.Name(c.short(s.Tag))},
		Created: s.CreatedAt.UTC(), Updated: s.CreatedAt.UTC(), Builds: 1, EnvdVersion: envdVersion, Status: status,
	}
}

// listTemplates is GET /templates and /v2/templates. It returns all named snapshots.
func (ss snapshots) listTemplates(c call) (answer, error) {
	all, err := c.engine.ListSnapshots(c.ctx)
	if err != nil {
		return answer{}, err
	}
	out := []templateInfo{}
	if ss.h.builder != nil {
		for _, t := range ss.h.opt.Builds.All(c.who.Tenant) {
			out = append(out, builds(ss).shownBuilt(c, t))
		}
	}
	for _, s := range all {
		if !s.Transient && !ss.h.isLayer(s.Tag) {
			out = append(out, shownTemplate(c, s))
		}
	}
	return answer{http.StatusOK, out}, nil
}

// isLayer reports whether a snapshot belongs to a step of a build. Such snapshots are hidden.
func (h *Handler) isLayer(tag string) bool { return h.builder != nil && h.opt.Builds.IsLayer(tag) }

func (ss snapshots) findTemplate(c call, name string) (sandbox.SnapshotInfo, error) {
	tag, err := templates.Tag(name)
	var info sandbox.SnapshotInfo
	if err == nil {
		info, err = c.engine.SnapshotInfo(c.ctx, tag)
	}
	if err != nil {
		return info, failf(http.StatusNotFound, "template %q not found", sandbox.Clip(name))
	}
	return info, nil
}

func (ss snapshots) template(c call) (answer, error) {
	if t, ok := builds(ss).template(c.who.Tenant, c.PathValue("id")); ok {
		return answer{http.StatusOK, detailed(builds(ss).shownBuilt(c, t), t.Builds)}, nil
	}
	s, err := ss.findTemplate(c, c.PathValue("id"))
	return answer{http.StatusOK, detailed(shownTemplate(c, s), nil)}, err
}

// templatePart is GET /templates/aliases/{alias} and GET /templates/{id}/tags, which a mux cannot
// distinguish.
func (ss snapshots) templatePart(c call) (answer, error) {
	switch {
	case c.PathValue("id") == "aliases":
		return ss.alias(c)
	case c.PathValue("part") == "tags":
		return ss.templateTags(c)
	}
	return answer{}, failf(http.StatusNotFound, "there is no such route")
}

// alias is GET /templates/aliases/{alias}. A name with only failed builds is not found.
func (ss snapshots) alias(c call) (answer, error) {
	id, public := "", false
	if ss.h.builder != nil {
		if t, _, err := ss.h.opt.Builds.Find(c.who.Tenant, c.PathValue("part")); err == nil {
			id = t.ID
		}
	}
	if id == "" {
		s, err := ss.findTemplate(c, c.PathValue("part"))
		if err != nil {
			return answer{}, err
		}
		id, public = s.Tag, s.Public
	}
	return answer{http.StatusOK, struct {
		ID     string `json:"templateID"`
		Public bool   `json:"public"`
	}{id, public}}, nil
}

// templateTag is a tag of a template.
type templateTag struct {
	Tag     string    `json:"tag"`
	Build   string    `json:"buildID"`
	Created time.Time `json:"createdAt"`
}

// snapshotBuildID returns a UUID for a snapshot no build made, because clients parse it as one.
func snapshotBuildID(s sandbox.SnapshotInfo) string {
	sum := sha256.Sum256([]byte(s.Tag + "\x00" + s.ContentHash))
	return build.UUID([16]byte(sum[:16]))
}

func (ss snapshots) templateTags(c call) (answer, error) {
	if t, ok := builds(ss).template(c.who.Tenant, c.PathValue("id")); ok {
		return answer{http.StatusOK, tagsOf(t)}, nil
	}
	if _, err := ss.findTemplate(c, c.PathValue("id")); err != nil {
		return answer{}, err
	}
	all, err := c.engine.ListSnapshots(c.ctx)
	if err != nil {
		return answer{}, err
	}
	out := []templateTag{}
	for _, s := range all {
		if c.called(s.Tag, c.PathValue("id")) {
			out = append(out, templateTag{templates.Version(s.Tag), snapshotBuildID(s), s.CreatedAt.UTC()})
		}
	}
	return answer{http.StatusOK, out}, nil
}
