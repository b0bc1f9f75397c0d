package e2bapi

import (
	"encoding/json"
	"net"
	"net/http"
	"time"

	"github.com/forkd/forkd/internal/api/e2bapi/records"
	"github.com/forkd/forkd/internal/domain/principal"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// Values for clients: the version of the guest's daemon, and an obsolete field.
const (
	envdVersion = "0.6.13"
	clientID    = "6532622b"
)

// createdSandbox is the answer to a client that creates a sandbox or connects to it.
type createdSandbox struct {
	Template     string  `json:"templateID"`
	ID           string  `json:"sandboxID"`
	Alias        string  `json:"alias,omitempty"`
	Client       string  `json:"clientID"`
	EnvdVersion  string  `json:"envdVersion"`
	EnvdToken    string  `json:"envdAccessToken,omitempty"`
	TrafficToken *string `json:"trafficAccessToken"`
	Domain       *string `json:"domain"`
}

func (h *Handler) created(k known, r *http.Request) createdSandbox {
	return createdSandbox{
		Template: k.rec.Template, ID: sandbox.DNSID(k.info.ID), Alias: k.rec.Alias, Client: clientID,
		EnvdVersion: envdVersion, EnvdToken: k.rec.EnvdToken, TrafficToken: optional(k.info.TrafficToken),
		Domain: optional(h.domain(r)),
	}
}

// domain returns the domain in the host names of ports, with the port at which the client reached
// the daemon.
func (h *Handler) domain(r *http.Request) string {
	_, port, err := net.SplitHostPort(r.Host)
	if h.opt.Domain == "" || err != nil || port == "" {
		return h.opt.Domain
	}
	return net.JoinHostPort(h.opt.Domain, port)
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// listedSandbox is a sandbox in a list.
type listedSandbox struct {
	Template    string            `json:"templateID"`
	Alias       string            `json:"alias,omitempty"`
	ID          string            `json:"sandboxID"`
	Client      string            `json:"clientID"`
	Started     time.Time         `json:"startedAt"`
	End         time.Time         `json:"endAt"`
	CPUs        int               `json:"cpuCount"`
	MemoryMB    int               `json:"memoryMB"`
	DiskMB      int               `json:"diskSizeMB"`
	Metadata    map[string]string `json:"metadata,omitempty"`
	State       state             `json:"state"`
	EnvdVersion string            `json:"envdVersion"`
}

func listed(k known) listedSandbox {
	s := stateRunning
	if stateOf(k.info) == statePaused {
		s = statePaused
	}
	return listedSandbox{
		Template: k.rec.Template, Alias: k.rec.Alias, ID: sandbox.DNSID(k.info.ID), Client: clientID,
		Started: k.rec.Started.UTC(), End: endOf(k.rec).UTC(), CPUs: max(k.info.Shape.VCPUs, 1),
		MemoryMB: k.info.Shape.MemoryMiB, DiskMB: k.rec.DiskMB, Metadata: k.rec.Metadata, State: s,
		EnvdVersion: envdVersion,
	}
}

// endOf returns the end of a sandbox. Clients require a time, so a sandbox without an end gets one
// a year after its start.
func endOf(r records.Record) time.Time {
	if r.End.IsZero() {
		return r.Started.AddDate(1, 0, 0)
	}
	return r.End
}

// sandboxDetail describes one sandbox completely.
type sandboxDetail struct {
	listedSandbox
	EnvdToken string          `json:"envdAccessToken,omitempty"`
	Domain    *string         `json:"domain"`
	Internet  *bool           `json:"allowInternetAccess,omitempty"`
	Network   json.RawMessage `json:"network,omitempty"`
	Lifecycle lifecycle       `json:"lifecycle"`
	PauseMode string          `json:"pauseMode,omitempty"`
}

type lifecycle struct {
	AutoResume bool   `json:"autoResume"`
	OnTimeout  string `json:"onTimeout"`
}

// info is GET /sandboxes/{id}.
func (ls listing) info(c call) (answer, error) {
	k, err := ls.h.find(c)
	if err != nil {
		return answer{}, err
	}
	d := sandboxDetail{
		listedSandbox: listed(k), Domain: optional(ls.h.domain(c.Request)),
		Internet: k.rec.Internet, Network: k.rec.Network,
		Lifecycle: lifecycle{AutoResume: k.rec.AutoResume, OnTimeout: "kill"},
	}
	if c.who.May(principal.Run) { // the token gives full access to the sandbox
		d.EnvdToken = k.rec.EnvdToken
	}
	if k.rec.Pause {
		d.Lifecycle.OnTimeout = "pause"
	}
	if d.State == statePaused {
		d.PauseMode = "full"
		if k.info.Cold {
			d.PauseMode = "filesystem"
		}
	}
	return answer{http.StatusOK, d}, nil
}
