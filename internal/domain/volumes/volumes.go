// Package volumes gives tenants their volumes: package volume of the store, with the errors of the daemon. The
// API and the engine use it. It does not know sandboxes; the engine takes and returns volumes for them.
package volumes

import (
	"errors"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/store/volume"
)

// Tenants gives access to the volumes of all tenants.
type Tenants struct {
	Store *volume.Store // all volumes
	// Removed is called after a removal, because layers may be unused now. It may be nil.
	Removed func()
}

// errOff is the error of a daemon without volumes.
var errOff = sandbox.Errorf(sandbox.ErrUnsupported, "", "this daemon has no volumes")

// Create makes an empty volume of a tenant.
func (t Tenants) Create(owner, name string, bytes int64) (volume.Volume, error) {
	if t.Store == nil {
		return volume.Volume{}, errOff
	}
	v, err := t.Store.Create(owner, name, bytes)
	return v, Error(err)
}

// Clone makes a volume with the present content of another one, which no sandbox has.
func (t Tenants) Clone(owner, from, name string, readOnly bool) (volume.Volume, error) {
	if t.Store == nil {
		return volume.Volume{}, errOff
	}
	v, err := t.Store.Clone(owner, from, name, readOnly)
	return v, Error(err)
}

// Remove removes a volume that no sandbox has.
func (t Tenants) Remove(owner, name string) error {
	if t.Store == nil {
		return errOff
	}
	err := t.Store.Remove(owner, name)
	if err == nil && t.Removed != nil {
		t.Removed()
	}
	return Error(err)
}

// Get returns a tenant's volume by its name or id.
func (t Tenants) Get(owner, name string) (volume.Volume, error) {
	if t.Store == nil {
		return volume.Volume{}, errOff
	}
	v, err := t.Store.Get(owner, name)
	return v, Error(err)
}

// List returns a tenant's volumes.
func (t Tenants) List(owner string) []volume.Volume {
	if t.Store == nil {
		return nil
	}
	return t.Store.List(owner)
}

// Error converts an error of the store for the caller.
func Error(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, volume.ErrNotFound):
		return sandbox.Errorf(sandbox.ErrNotFound, sandbox.ReasonVolumeNotFound, "%w", err)
	case errors.Is(err, volume.ErrExists):
		return sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonVolumeExists, "%w", err)
	case errors.Is(err, volume.ErrHeld):
		return sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonVolumeHeld, "%w", err)
	case errors.Is(err, volume.ErrLimit):
		return sandbox.Errorf(sandbox.ErrQuota, sandbox.ReasonQuota, "%w", err)
	case errors.Is(err, volume.ErrInvalid):
		return sandbox.Errorf(sandbox.ErrInvalid, "", "%w", err)
	case sandbox.IsNoSpace(err):
		return sandbox.NoSpace(err)
	}
	return err
}
