package e2bapi

import (
	"net/http"
	"time"

	"github.com/forkd/forkd/internal/e2bapi/templates"
	"github.com/forkd/forkd/internal/sandbox"
)

// templateInfo is a snapshot as a template.
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

func shownTemplate(c call, s sandbox.SnapshotInfo) templateInfo {
	status := "ready"
	switch s.Status {
	case sandbox.SnapshotFailed:
		status = "error"
	case sandbox.SnapshotWriting:
		status = "building"
	}
	return templateInfo{
		ID: s.Tag, Build: s.Tag, CPUs: max(s.Shape.VCPUs, 1), MemoryMB: s.Shape.MemoryMiB,
		DiskMB: int(s.DiskLogicalBytes >> 20), Public: s.Public,
		Aliases: []string{c.short(s.Tag)}, Names: []string{templates.Name(c.short(s.Tag))},
		Created: s.CreatedAt.UTC(), Updated: s.CreatedAt.UTC(), Builds: 1, EnvdVersion: envdVersion, Status: status,
	}
}

// listTemplates is GET /templates and /v2/templates: all snapshots that somebody named.
func (h snapshots) listTemplates(c call) (answer, error) {
	all, err := c.engine.ListSnapshots(c.ctx)
	if err != nil {
		return answer{}, err
	}
	out := []templateInfo{}
	for _, s := range all {
		if !s.Transient {
			out = append(out, shownTemplate(c, s))
		}
	}
	return answer{http.StatusOK, out}, nil
}

func (h snapshots) findTemplate(c call, name string) (sandbox.SnapshotInfo, error) {
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

func (h snapshots) template(c call) (answer, error) {
	s, err := h.findTemplate(c, c.PathValue("id"))
	return answer{http.StatusOK, shownTemplate(c, s)}, err
}

// templatePart is GET /templates/aliases/{alias} and GET /templates/{id}/tags, which a mux
// cannot tell apart.
func (h snapshots) templatePart(c call) (answer, error) {
	switch {
	case c.PathValue("id") == "aliases":
		return h.alias(c)
	case c.PathValue("part") == "tags":
		return h.templateTags(c)
	}
	return answer{}, failf(http.StatusNotFound, "there is no such route")
}

func (h snapshots) alias(c call) (answer, error) {
	s, err := h.findTemplate(c, c.PathValue("part"))
	return answer{http.StatusOK, struct {
		ID     string `json:"templateID"`
		Public bool   `json:"public"`
	}{s.Tag, s.Public}}, err
}

func (h snapshots) templateTags(c call) (answer, error) {
	if _, err := h.findTemplate(c, c.PathValue("id")); err != nil {
		return answer{}, err
	}
	all, err := c.engine.ListSnapshots(c.ctx)
	if err != nil {
		return answer{}, err
	}
	type tag struct {
		Tag     string    `json:"tag"`
		Build   string    `json:"buildID"`
		Created time.Time `json:"createdAt"`
	}
	out := []tag{}
	for _, s := range all {
		if c.called(s.Tag, c.PathValue("id")) {
			out = append(out, tag{templates.Version(s.Tag), s.Tag, s.CreatedAt.UTC()})
		}
	}
	return answer{http.StatusOK, out}, nil
}
