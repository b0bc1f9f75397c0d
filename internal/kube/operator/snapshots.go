package operator

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/kube/blueprint"
	"github.com/forkd/forkd/internal/kube/fleet"
	"github.com/forkd/forkd/internal/kube/objects/agents"
	"github.com/forkd/forkd/internal/kube/objects/forkdkinds"
)

// snapshots finds the snapshots of names in objects.
type snapshots struct {
	core *core

	mu    sync.Mutex // guards the fields below
	known map[types.NamespacedName]resolved
}

// resolved is the snapshot of a name, for some time.
type resolved struct {
	tag   string
	shape blueprint.Shape
	until time.Time
}

// Limits of the remembered names.
const (
	rememberFor = 30 * time.Second
	rememberMax = 4096
)

// of returns the tag of a plan's snapshot, and checks the plan's limits.
func (s *snapshots) of(ctx context.Context, namespace string, p blueprint.Plan) (string, error) {
	var r resolved
	var err error
	if p.Snapshot != "" {
		r, err = s.named(ctx, namespace, p.Snapshot)
	} else {
		r, err = s.image(ctx, p)
	}
	if err != nil {
		return "", err
	}
	if err := p.Fits(r.shape); err != nil {
		return "", invalid(err)
	}
	return r.tag, nil
}

// named returns the snapshot with a name: a SandboxSnapshot of the namespace, or a snapshot without a namespace.
func (s *snapshots) named(ctx context.Context, namespace, name string) (resolved, error) {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	s.mu.Lock()
	r, ok := s.known[key]
	s.mu.Unlock()
	if ok && time.Now().Before(r.until) {
		return r, nil
	}
	r, err := s.ask(ctx, key)
	if err != nil {
		return r, err
	}
	r.until = time.Now().Add(rememberFor)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.known) >= rememberMax {
		clear(s.known)
	}
	s.known[key] = r
	return r, nil
}

// forget makes the next use ask again.
func (s *snapshots) forget(namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, types.NamespacedName{Namespace: namespace, Name: name})
}

func (s *snapshots) ask(ctx context.Context, key types.NamespacedName) (resolved, error) {
	var object forkdkinds.SandboxSnapshot
	err := s.core.Get(ctx, key, &object)
	switch {
	case err == nil && isTrue(object.Status.Conditions, agents.Ready) && object.Status.Shape != nil:
		shape := object.Status.Shape
		return resolved{tag: object.Status.Tag, shape: blueprint.Shape{MemoryMiB: int(shape.MemoryMiB),
			VCPUs: int(shape.VCPUs)}}, nil
	case err == nil:
		return resolved{}, &problem{agents.DependenciesNotReady, fmt.Sprintf("SandboxSnapshot %s is not ready", key.Name),
			2 * time.Second}
	case !apierrors.IsNotFound(err):
		return resolved{}, err
	}
	missing := &problem{agents.DependenciesNotReady,
		fmt.Sprintf("no SandboxSnapshot and no shared snapshot has the name %q", key.Name), 5 * time.Second}
	if !tagged(key.Name) {
		return resolved{}, missing
	}
	info, err := s.core.fleet.Client().Snapshot(ctx, key.Name)
	if client.IsNotFound(err) {
		return resolved{}, missing
	}
	if err != nil {
		return resolved{}, refusal(err)
	}
	// A snapshot of a sandbox has its labels. Only its namespace may fork it, and by the object's name.
	if _, owned := fleet.OwnerOf(info.Labels); owned || info.Labels[fleet.LabelNamespace] != "" {
		return resolved{}, missing
	}
	if info.Status != api.SnapshotReady {
		return resolved{}, &problem{agents.DependenciesNotReady, fmt.Sprintf("snapshot %s is %s", key.Name, info.Status),
			2 * time.Second}
	}
	return resolved{tag: info.Tag, shape: blueprint.Shape{MemoryMiB: info.MemoryMiB, VCPUs: info.VCPUs}}, nil
}

// tagged reports whether a name may be a tag: DNS names may have dots, which tags have not.
func tagged(name string) bool {
	return !strings.Contains(name, ".") && len(name) <= 64 && !ownTag.MatchString(name)
}

// ownTag is the form of tagOf: of snapshots that belong to an object, even before they have its labels.
var ownTag = regexp.MustCompile(`^kube-[a-z2-7]{26}$`)

// image returns the snapshot of a boot image, and makes it for the first plan with this image and size. Its content
// is the operator's, so all namespaces share it.
func (s *snapshots) image(ctx context.Context, p blueprint.Plan) (resolved, error) {
	memory, vcpus := int(p.MemoryBytes>>20), int(p.MilliCPU/1000)
	if p.MemoryBytes%(1<<20) != 0 || p.MilliCPU%1000 != 0 {
		return resolved{}, invalid(errors.New("limits of a boot image: want whole MiB of memory and whole processors"))
	}
	tag := "kube-img-" + digest(fmt.Sprintf("%s %d %d", p.Image, memory, vcpus))
	key := types.NamespacedName{Name: tag}
	s.mu.Lock()
	r, ok := s.known[key]
	s.mu.Unlock()
	if ok && time.Now().Before(r.until) {
		return r, nil
	}
	detail, err := s.core.fleet.Client().Snapshot(ctx, tag)
	info := detail.SnapshotInfo
	if client.IsNotFound(err) {
		info, err = s.core.fleet.Client().CreateSnapshot(ctx,
			api.CreateSnapshotRequest{Tag: tag, Image: p.Image, MemoryMiB: memory, VCPUs: vcpus}, nil)
	}
	switch {
	case client.IsNotFound(err):
		return resolved{}, &problem{agents.DependenciesNotReady, err.Error(), 5 * time.Second}
	case err != nil:
		return resolved{}, refusal(err)
	case info.Status != api.SnapshotReady:
		return resolved{}, &problem{agents.DependenciesNotReady, fmt.Sprintf("snapshot %s is %s", tag, info.Status),
			2 * time.Second}
	}
	r = resolved{tag: tag, shape: blueprint.Shape{MemoryMiB: info.MemoryMiB, VCPUs: info.VCPUs},
		until: time.Now().Add(rememberFor)}
	s.mu.Lock()
	s.known[key] = r
	s.mu.Unlock()
	return r, nil
}

// digest returns 26 letters and digits for a text.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:16]))
}
