package auditing

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/api/requestinfo"
	"github.com/forkd/forkd/internal/domain/audit"
)

// lines is a log in memory.
type lines []audit.Entry

func (l *lines) Add(e audit.Entry)  { *l = append(*l, e) }
func (l *lines) Stats() audit.Stats { return audit.Stats{Written: uint64(len(*l))} }

func TestALinePerRequest(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("DELETE /v1/sandboxes/{id}", func(http.ResponseWriter, *http.Request) {})
	for _, c := range []struct {
		name   string
		info   requestinfo.Info
		status int
		want   audit.Entry
	}{
		{"of a key", requestinfo.Info{Principal: "key k1", Asker: requestinfo.Asker{Key: "k1", Tenant: "acme"}}, 204,
			audit.Entry{Action: "sandbox.kill", Result: audit.OK, Principal: "key k1", Tenant: "acme"}},
		{"of a refused key", requestinfo.Info{Principal: "key k1", Err: "no"}, 403,
			audit.Entry{Action: "sandbox.kill", Result: audit.Refused, Principal: "key k1"}},
		{"of a client without a credential", requestinfo.Info{Asker: requestinfo.Asker{Tenant: "acme"}}, 401,
			audit.Entry{Action: "sandbox.kill", Result: audit.Refused, Principal: anonymous, Anonymous: true,
				Source: "192.0.2.1", Claim: "token"}},
		{"of another API", requestinfo.Info{Principal: "token", Act: requestinfo.Act{Action: "volume.make"}}, 500,
			audit.Entry{Action: "volume.make", Result: audit.Failed, Principal: "token"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got lines
			r := httptest.NewRequest("DELETE", "/v1/sandboxes/sb-1", nil)
			r.Header.Set("Authorization", "Bearer x")
			NewRecorder(&got, slog.New(slog.DiscardHandler), mux).Record(r, &c.info, c.status, time.Second)
			if len(got) != 1 {
				t.Fatalf("%d lines", len(got))
			}
			e := got[0]
			e = audit.Entry{Action: e.Action, Result: e.Result, Principal: e.Principal, Tenant: e.Tenant,
				Anonymous: e.Anonymous, Source: e.Source, Claim: e.Claim}
			if e != c.want {
				t.Errorf("got %+v, want %+v", e, c.want)
			}
		})
	}
}
