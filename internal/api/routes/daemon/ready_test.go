package daemon

import (
	"errors"
	"net/http"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// someHost is a host with a fixed capacity.
type someHost struct {
	has   sandbox.Capacity
	err   error
	asked int
}

func (h *someHost) Capacity() (sandbox.Capacity, error) {
	h.asked++
	return h.has, h.err
}

func TestReadiness(t *testing.T) {
	left := func(name string, free int64) sandbox.Capacity {
		return sandbox.Capacity{Admits: sandbox.AdmitsAll,
			Resources: []sandbox.Resource{{Name: name, Total: 100, Free: free}}}
	}
	for _, c := range []struct {
		what string
		has  sandbox.Capacity
		err  error
		kvm  error
		want api.Code
	}{
		{what: "all is there", has: left(sandbox.ResourceMemory, 1)},
		{what: "an unknown total", has: sandbox.Capacity{Resources: []sandbox.Resource{{Name: sandbox.ResourceThreads}}}},
		{what: "fewer at a time", has: sandbox.Capacity{Admits: sandbox.AdmitsFewer}},
		{what: "no memory", has: left(sandbox.ResourceMemory, 0), want: api.CodeNoMemory},
		{what: "no disk", has: left(sandbox.ResourceDisk, -5), want: api.CodeNoSpace},
		{what: "no threads", has: left(sandbox.ResourceThreads, 0), want: api.CodeNoResources},
		{what: "pressure", has: sandbox.Capacity{Admits: sandbox.AdmitsNone}, want: api.CodeBusy},
		{what: "no KVM", has: left(sandbox.ResourceMemory, 1), kvm: errors.New("no"), want: api.CodeNoResources},
		{what: "an unreadable host", err: errors.New("no"), want: api.CodeNoResources},
	} {
		host := &someHost{has: c.has, err: c.err}
		s := &readyRoutes{host: host, kvm: func() error { return c.kvm }}
		for range 3 { // the answer is kept for a while
			f := s.now()
			switch {
			case f == nil && c.want != "":
				t.Errorf("%s: ready", c.what)
			case f != nil && (f.Code != c.want || f.GetStatus() != http.StatusServiceUnavailable):
				t.Errorf("%s: %d %s: %s", c.what, f.GetStatus(), f.Code, f.Message)
			}
		}
		if host.asked > 1 {
			t.Errorf("%s: the host was measured %d times", c.what, host.asked)
		}
	}
}
