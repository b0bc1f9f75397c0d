package wire

import (
	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// DomainLife converts the lifetime in a request for a fork.
func DomainLife(in api.SandboxLife) sandbox.Life {
	return sandbox.Life{TTL: Seconds(in.TTLSecs), Idle: Seconds(in.IdleSecs), AtEnd: sandbox.AtEnd(in.AtEnd),
		AutoResume: in.AutoResume, FilesystemOnly: in.FilesystemOnly, RestartOnHang: in.RestartOnHang}
}

// life returns nil for a sandbox without limits of its lifetime.
func life(i sandbox.Info) *api.SandboxLifeInfo {
	l := i.Life
	if l == (sandbox.Life{}) {
		return nil
	}
	out := &api.SandboxLifeInfo{IdleSecs: l.Idle.Seconds(), AtEnd: api.AtEnd(l.AtEnd), AutoResume: l.AutoResume,
		FilesystemOnly: l.FilesystemOnly, RestartOnHang: l.RestartOnHang,
		UnusedSecs: i.Unused.Seconds()}
	if !l.Deadline.IsZero() {
		out.DeadlineUnix = Optional(l.Deadline.Unix())
	}
	return out
}
