package auth_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/api/auth"
	"github.com/forkd/forkd/internal/domain/principal"
	"github.com/forkd/forkd/internal/sys/peercred"
)

const token = "0123456789abcdef0123456789abcdef"

func TestWhoMayUseTheSocket(t *testing.T) {
	const stranger, right, wrong = 54321, "Bearer " + token, "Bearer 00000000000000000000000000000000"
	own := uint32(os.Geteuid())
	for _, c := range []struct {
		name   string
		uid    uint32
		daemon string // its token
		shown  string
		code   api.Code
		reason api.Reason
	}{
		{"the daemon's user", own, "", "", "", ""},
		{"root", 0, "", "", "", ""},
		{"another user", stranger, "", "", api.CodeForbidden, api.ReasonSocketForeign},
		{"a member of the socket's group", stranger, "", "", "", ""},
		{"a member of the socket's group with a wrong token", stranger, token, wrong, api.CodeUnauthorized, ""},
		{"another user, of a daemon with a token", stranger, token, "", api.CodeUnauthorized, ""},
		{"another user with the token", stranger, token, right, "", ""},
		{"another user with a wrong token", stranger, token, wrong, api.CodeUnauthorized, ""},
		{"the daemon's user with the token", own, token, right, "", ""},
		{"the daemon's user with a wrong token", own, token, wrong, api.CodeUnauthorized, ""},
		{"the daemon's user with a token for nothing", own, "", right, api.CodeUnauthorized, api.ReasonTokenUnwanted},
		{"the daemon's user with another kind of authorization", own, token, "Basic " + token, api.CodeUnauthorized, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := httptest.NewRequest("GET", "/v1/sandboxes", nil)
			member := strings.Contains(c.name, "member")
			r = r.WithContext(auth.WithPeer(r.Context(), peercred.Peer{UID: c.uid, Member: member}))
			if c.shown != "" {
				r.Header.Set("Authorization", c.shown)
			}
			e := refusal(t, auth.Access{Local: true, Token: c.daemon}, r)
			if e.Code != c.code || e.Reason != c.reason {
				t.Errorf("refused with %q %q, want %q %q", e.Code, e.Reason, c.code, c.reason)
			}
		})
	}
}

func TestAConnectionOfNobodyIsAStrangers(t *testing.T) {
	e := refusal(t, auth.Access{Local: true}, httptest.NewRequest("GET", "/v1/sandboxes", nil))
	if e.Code != api.CodeForbidden {
		t.Errorf("refused with %q", e.Code)
	}
}

// refusal returns the error of a request. Its code is empty if the request is admitted.
func refusal(t *testing.T, access auth.Access, r *http.Request) apierror.Error {
	t.Helper()
	ctx, err := auth.Authenticator{
		Askers: auth.NewAskers(nil),
		Charge: func(*http.Request, string) error { return nil },
	}.For(access)(r)
	if err == nil {
		if principal.From(ctx).Name == "" {
			t.Error("an admitted request has no principal")
		}
		return apierror.Error{}
	}
	return *apierror.From(err)
}

func TestTokensThatProtectNothing(t *testing.T) {
	for _, bad := range []string{"", "short", "REPLACE_ME_0123456789abcdef", "CHANGE_ME_0123456789abcdef", "0123456789 abcdef0"} {
		if auth.CheckToken(bad) == nil {
			t.Errorf("token %q is accepted", bad)
		}
	}
	if err := auth.CheckToken(token); err != nil {
		t.Error(err)
	}
}
