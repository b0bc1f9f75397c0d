package wire

import (
	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

func heldSecret(h sandbox.HeldSecret) api.HeldSecret {
	return api.HeldSecret{Name: h.Name, Version: h.Version, Env: h.Variable, Void: h.Void}
}

// SecretRefs converts the secrets of a request.
func SecretRefs(in []api.SecretRef) (out []sandbox.SecretRef) {
	for _, r := range in {
		out = append(out, sandbox.SecretRef{Name: r.Name, Variable: r.Env})
	}
	return out
}

// DomainVolumes converts the volumes of a fork.
func DomainVolumes(in []api.VolumeMount) (out []sandbox.VolumeMount) {
	for _, v := range in {
		out = append(out, sandbox.VolumeMount{Name: v.Name, Path: v.Path, Mode: sandbox.VolumeMode(v.Mode),
			ReadOnly: v.ReadOnly})
	}
	return out
}

func volumeMount(v sandbox.Volume) api.VolumeMount {
	return api.VolumeMount{Name: v.Name, Path: v.Path, Mode: api.VolumeMode(v.Mode), ReadOnly: v.ReadOnly}
}

// containedVolume describes a volume of a snapshot. Its name and path may be another daemon's.
func containedVolume(v sandbox.Volume) api.SnapshotVolume {
	return api.SnapshotVolume{Name: v.Name, Path: v.Path, SizeMiB: v.Bytes >> 20, ReadOnly: v.ReadOnly}
}

// DomainJoin converts the private network of a fork.
func DomainJoin(j *api.NetJoin) *sandbox.NetJoin {
	if j == nil {
		return nil
	}
	return &sandbox.NetJoin{Network: j.Network, Alias: j.Alias}
}

func netJoin(m *sandbox.Member) *api.NetJoin {
	if m == nil {
		return nil
	}
	return &api.NetJoin{Network: m.Network, Alias: m.Alias}
}
