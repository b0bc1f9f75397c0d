package router

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/kube/fleet"
)

// found finds sandboxes by namespace and name, and remembers them for a short time.
type found struct {
	forkd *client.Client

	mu     sync.Mutex // guards the fields below
	byName map[target]entry
	roots  map[string]string // directories of the runtime API, by id
}

// entry is a found sandbox.
type entry struct {
	sb    api.SandboxInfo
	until time.Time
}

// Limits of the memory.
const (
	keep    = 5 * time.Second
	maxKept = 8192
)

// of returns a sandbox. Its labels decide, and the node in its id keeps them. So a forged name finds no sandbox of
// another namespace, and the answer is the same as for a missing one.
func (f *found) of(ctx context.Context, to target) (api.SandboxInfo, error) {
	f.mu.Lock()
	e, ok := f.byName[to]
	f.mu.Unlock()
	if ok && time.Now().Before(e.until) {
		return e.sb, nil
	}
	sb, err := f.ask(ctx, to)
	if err != nil {
		return sb, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.byName) >= maxKept {
		clear(f.byName)
	}
	f.byName[to] = entry{sb, time.Now().Add(keep)}
	return sb, nil
}

func (f *found) ask(ctx context.Context, to target) (api.SandboxInfo, error) {
	missing := refuse(http.StatusBadGateway, "no sandbox %s is in namespace %s", to.name, to.namespace)
	if id := to.name; sandbox.ValidID(id) { // the Sandbox of a claim
		sb, err := f.forkd.Sandbox(ctx, id)
		if client.IsNotFound(err) {
			return sb, missing
		}
		if err != nil {
			return sb, err
		}
		o, ok := fleet.OwnerOf(sb.Labels)
		if !ok || o.Namespace != to.namespace || o.Kind == "Sandbox" || to.uid != "" &&
			sb.Labels[fleet.LabelSandboxUID] != to.uid {
			return sb, missing
		}
		return sb, nil
	}
	list, err := f.forkd.ListSandboxes(ctx, "label="+fleet.LabelKind+"=Sandbox",
		"label="+fleet.LabelNamespace+"="+to.namespace,
		"label="+fleet.LabelName+"="+to.name)
	if err != nil {
		return api.SandboxInfo{}, err
	}
	for _, sb := range list {
		if o, ok := fleet.OwnerOf(sb.Labels); ok && (to.uid == "" || o.UID == to.uid) {
			return f.forkd.Sandbox(ctx, sb.ID) // a list has no traffic_token
		}
	}
	return api.SandboxInfo{}, missing
}
