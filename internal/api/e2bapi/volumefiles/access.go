package volumefiles

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/domain/volumes"
	"github.com/forkd/forkd/internal/guest/agentproto/agentclient"
	"github.com/forkd/forkd/internal/leaf/labels"
	"github.com/forkd/forkd/internal/net/netpolicy"
	"github.com/forkd/forkd/internal/store/volume"
)

// Label marks the sandboxes of this package. Its value is the volume's id.
const Label = labels.VolumeFiles

// mountPath is the mount point in the sandboxes of this package.
const mountPath = "/mnt/volume"

// idle is how long a sandbox of this package waits for the next request. Other clients cannot mount its volume
// for so long.
const idle = 2 * time.Second

// longest limits the life of a sandbox of this package, in case its engine does not end idle ones.
const longest = 24 * time.Hour

// Engine is the part of the engine that this package uses, as the sender of a request may use it.
type Engine interface {
	Fork(ctx context.Context, req sandbox.ForkRequest) (sandbox.ForkResult, error)
	List() []sandbox.Info
	Get(id string) (sandbox.Info, error)
	Kill(ctx context.Context, id string) error
	sandbox.AgentDialer
}

// Access opens the files of volumes. It is safe for concurrent use.
type Access struct {
	volumes volumes.Tenants
	users   users
	starts  users // one request at a time forks for a volume
}

// New returns the access to these volumes.
func New(v volumes.Tenants) *Access { return &Access{volumes: v} }

// Ours reports whether a sandbox was made by this package.
func Ours(info sandbox.Info) bool { return info.Labels[Label] != "" }

// Sender is the sender of a request.
type Sender struct {
	Engine Engine
	Tenant string
	// Template returns the tag of the snapshot to fork if no sandbox has the volume.
	Template func(ctx context.Context) (tag string, err error)
}

// Use calls f with the files of a tenant's volume, by name or id. The files are valid until f returns.
func (a *Access) Use(ctx context.Context, s Sender, name string, f func(agentclient.VolumeFiles) error) error {
	v, err := a.volumes.Get(s.Tenant, name)
	if err != nil {
		return err
	}
	leave, err := a.users.enter(ctx, v.ID, 1)
	if err != nil {
		return err
	}
	defer leave()
	c, path, err := a.open(ctx, s, v.ID)
	if err != nil {
		return err
	}
	defer c.Close()
	return f(c.VolumeFiles(path))
}

// attempts limits how often a sandbox that ends in the same moment is looked for again.
const attempts = 5

// open connects to the agent of a sandbox with the volume.
func (a *Access) open(ctx context.Context, s Sender, id string) (*agentclient.Client, string, error) {
	leave, err := a.starts.enter(ctx, id, all)
	if err != nil {
		return nil, "", err
	}
	defer leave()
	for i := 0; ; i++ {
		info, path, err := a.sandboxWith(ctx, s, id)
		if err == nil {
			c := agentclient.New(func(ctx context.Context) (net.Conn, error) { return s.Engine.DialAgent(ctx, info.ID) })
			if err = c.Health(ctx); err == nil {
				return c, path, nil
			}
			c.Close()
		}
		again := errors.Is(err, sandbox.ErrNotFound) || errors.Is(err, sandbox.ErrGuestGone) || errors.Is(err, errEnding)
		if _, gone := a.volumes.Get(s.Tenant, id); gone != nil {
			return nil, "", gone
		}
		if !again || i == attempts {
			return nil, "", err
		}
		select {
		case <-time.After(100 * time.Millisecond << i):
		case <-ctx.Done():
			return nil, "", context.Cause(ctx)
		}
	}
}

// errEnding is the error of a volume that changes hands at this moment.
var errEnding = errors.New("the volume changes hands")

// sandboxWith returns a running sandbox with the volume and its mount point. It forks one if there is none.
func (a *Access) sandboxWith(ctx context.Context, s Sender, id string) (sandbox.Info, string, error) {
	v, err := a.volumes.Get(s.Tenant, id)
	if err != nil {
		return sandbox.Info{}, "", err
	}
	if v.ReadOnly {
		for _, info := range s.Engine.List() {
			if info.Labels[Label] == id && info.Status == sandbox.StatusRunning {
				return mounted(info, v)
			}
		}
		return a.fork(ctx, s, v)
	}
	if v.Holder == "" {
		return a.fork(ctx, s, v)
	}
	info, err := s.Engine.Get(v.Holder)
	switch {
	case errors.Is(err, sandbox.ErrNotFound): // it is being made or has just ended
		return info, "", errEnding
	case err != nil:
		return info, "", err
	case info.Status == sandbox.StatusPaused, info.Status == sandbox.StatusPausing:
		return info, "", sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonVolumeHeld,
			"the paused sandbox %s has the volume %s: resume it, or end it", info.ID, v.Name)
	}
	return mounted(info, v)
}

// mounted returns the mount point of a sandbox's volume.
func mounted(info sandbox.Info, v volume.Volume) (sandbox.Info, string, error) {
	for _, m := range info.Volumes {
		if m.ID == v.ID {
			return info, m.Path, nil
		}
	}
	return info, "", errEnding
}

// fork makes a sandbox for the files of a volume.
func (a *Access) fork(ctx context.Context, s Sender, v volume.Volume) (sandbox.Info, string, error) {
	tag, err := s.Template(ctx)
	if err != nil {
		return sandbox.Info{}, "", err
	}
	closed := true
	mount := sandbox.VolumeMount{Name: v.ID, Path: mountPath, Mode: sandbox.VolumePrivate}
	if v.ReadOnly {
		mount.Mode = sandbox.VolumeShareRO
	}
	res, err := s.Engine.Fork(ctx, sandbox.ForkRequest{Tag: tag, N: 1, Network: &netpolicy.Spec{Default: netpolicy.Deny},
		PrivatePorts: &closed, Volumes: []sandbox.VolumeMount{mount}, Labels: map[string]string{Label: v.ID}, OwnLabels: true,
		Life: sandbox.Life{TTL: longest, Idle: idle, AtEnd: sandbox.AtEndKill}, RenewAgent: true})
	switch {
	case err != nil:
		return sandbox.Info{}, "", fmt.Errorf("open the files of volume %s: %w", v.Name, err)
	case len(res.Children) != 1:
		return sandbox.Info{}, "", fmt.Errorf("open the files of volume %s: %d children, want one", v.Name, len(res.Children))
	case res.Children[0].Err != nil:
		return sandbox.Info{}, "", fmt.Errorf("open the files of volume %s: %w", v.Name, res.Children[0].Err)
	}
	info, err := s.Engine.Get(res.Children[0].Info.ID)
	if err != nil {
		return info, "", err
	}
	return mounted(info, v)
}

// Free ends the sandboxes of this package that have one of the volumes, after their requests. Until the caller
// calls done, requests for the files of these volumes wait.
func (a *Access) Free(ctx context.Context, s Sender, names []string) (done func(), err error) {
	var left []func()
	done = func() {
		for _, leave := range left {
			leave()
		}
	}
	for _, name := range names {
		v, err := a.volumes.Get(s.Tenant, name)
		if err != nil {
			continue // the caller will see it
		}
		leave, err := a.users.leaveAlone(ctx, v)
		if err != nil {
			done()
			return nil, err
		}
		left = append(left, leave)
		info, err := s.Engine.Get(v.Holder)
		if err != nil || info.Labels[Label] != v.ID {
			continue
		}
		if err := s.Engine.Kill(ctx, info.ID); err != nil && !errors.Is(err, sandbox.ErrNotFound) {
			done()
			return nil, err
		}
	}
	return done, nil
}
