package httpapi_test

import (
	"cmp"
	"fmt"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/domain/keys"
	"github.com/forkd/forkd/internal/domain/principal"
)

func TestAVolumeIsMadeUsedAndRemoved(t *testing.T) {
	b := newBench(t)
	made := into[api.Volume](t, b.do("POST", "/v1/volumes", `{"name":"data","size_mib":128}`), 201)
	if made.SizeMiB != 128 || made.Sandbox != "" {
		t.Errorf("%+v", made)
	}
	fork := func(n int, mount string) string {
		return fmt.Sprintf(`{"snapshot_tag":"py","n":%d,"volumes":[%s]}`, n, mount)
	}
	const private = `{"name":"data","path":"/data"}`
	sb := into[[]api.SandboxInfo](t, b.do("POST", "/v1/sandboxes", fork(1, private)), 201)[0]
	if len(sb.Volumes) != 1 || sb.Volumes[0].Mode != api.VolumePrivate {
		t.Errorf("the sandbox has %+v", sb.Volumes)
	}
	if got := into[api.Volume](t, b.do("GET", "/v1/volumes/data", ""), 200); got.Sandbox != sb.ID {
		t.Errorf("%+v, want the sandbox %s", got, sb.ID)
	}
	for what, row := range map[string]struct {
		method, path, body string
		code               api.Code
		reason             api.Reason
	}{
		"a second sandbox":   {"POST", "/v1/sandboxes", fork(1, private), api.CodeConflict, api.ReasonVolumeHeld},
		"removal while used": {"DELETE", "/v1/volumes/data", "", api.CodeConflict, api.ReasonVolumeHeld},
		"a snapshot of it": {"POST", "/v1/volumes/data/snapshot", `{"name":"s"}`, api.CodeConflict,
			api.ReasonVolumeHeld},
		"two children":  {"POST", "/v1/sandboxes", fork(2, private), api.CodeInvalid, api.ReasonVolumePrivate},
		"no volume":     {"POST", "/v1/sandboxes", fork(1, `{"name":"x","path":"/x"}`), api.CodeNotFound, api.ReasonVolumeNotFound},
		"a system path": {"POST", "/v1/sandboxes", fork(1, `{"name":"data","path":"/usr"}`), api.CodeInvalid, api.ReasonVolumePath},
		"a mode": {"POST", "/v1/sandboxes", fork(1, `{"name":"data","path":"/d","mode":"steal"}`), api.CodeInvalid,
			api.ReasonVolumeMode},
		"a move from a running sandbox": {"POST", "/v1/sandboxes", fork(1, `{"name":"data","path":"/d","mode":"move"}`),
			api.CodeConflict, api.ReasonVolumeHeld},
		"a taken name": {"POST", "/v1/volumes", `{"name":"data"}`, api.CodeConflict, api.ReasonVolumeExists},
	} {
		if e := wantError(t, b.do(row.method, row.path, row.body), row.code); e.Reason != row.reason {
			t.Errorf("%s: %+v, want %s", what, e, row.reason)
		}
	}
	if w := b.do("DELETE", "/v1/sandboxes/"+sb.ID, ""); w.Code != 204 {
		t.Error(w.Code, w.Body)
	}
	if w := b.do("DELETE", "/v1/volumes/data", ""); w.Code != 204 {
		t.Error(w.Code, w.Body)
	}
	for _, action := range []string{"volume.create", "volume.remove"} {
		if !regexp.MustCompile(`"action":"` + action + `","result":"ok".*"object":"data"`).MatchString(b.audit.String()) {
			t.Errorf("the audit log lacks %s", action)
		}
	}
}

// as sends a request with a key.
func as(b *bench, key, method, path, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+key)
	w := httptest.NewRecorder()
	b.h.ServeHTTP(w, r)
	return w
}

// A volume of another owner is answered as one that does not exist, whatever its state, to all keys. The same requests
// by its id get no further.
func TestVolumesOfOthers(t *testing.T) {
	b := newBench(t)
	key := func(tenant string, scopes principal.Scopes) string {
		_, text, err := b.keys.Create(keys.Spec{Name: fmt.Sprintf("k-%s-%d", tenant, scopes), Tenant: tenant, Scopes: scopes})
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	owners := map[string]string{"the operator": token, "acme": key("acme", principal.All)}
	askers := map[string]map[string]string{
		"the operator": {"a tenant's key with all scopes": key("evil", principal.All),
			"a tenant's key that forks": key("evil", principal.Read|principal.Fork)},
		"acme": {"another tenant's key with all scopes": key("evil", principal.All^principal.Layers),
			"the operator's token": token, "the operator's key": key("", principal.All)},
	}
	const absent = "absent"
	into[api.SnapshotInfo](t, b.do("PUT", "/v1/snapshots/py/public", `{"public":true}`), 200)
	request := regexp.MustCompile(`"request_id":"[0-9a-f]+"`)
	same := func(w *httptest.ResponseRecorder, name string) string {
		return fmt.Sprint(w.Code, request.ReplaceAllString(strings.ReplaceAll(w.Body.String(), name, absent), ""))
	}
	for owner, own := range owners {
		fork := func(name, mode string) string {
			return fmt.Sprintf(`{"snapshot_tag":"py","volumes":[{"name":%q,"path":"/data","mode":%q}]}`, name, mode)
		}
		volumes := map[string]string{} // what to call it, by what it is
		for _, state := range []string{"free", "snapshot", "held", "paused"} {
			name := strings.ReplaceAll(owner, " ", "-") + "-" + state // others may have one of the same name
			var v api.Volume
			if state == "snapshot" {
				v = into[api.Volume](t, as(b, own, "POST", "/v1/volumes/"+volumes["free"]+"/snapshot", fmt.Sprintf(`{"name":%q}`, name)), 201)
			} else {
				v = into[api.Volume](t, as(b, own, "POST", "/v1/volumes", fmt.Sprintf(`{"name":%q,"size_mib":64}`, name)), 201)
			}
			volumes[state] = name
			volumes[state+", by its id"] = v.ID
			if state == "held" || state == "paused" {
				sb := into[[]api.SandboxInfo](t, as(b, own, "POST", "/v1/sandboxes", fork(name, "private")), 201)[0]
				if state == "paused" {
					into[api.SandboxInfo](t, as(b, own, "POST", "/v1/sandboxes/"+sb.ID+"/pause", `{}`), 200)
				}
			}
		}
		before := as(b, own, "GET", "/v1/volumes", "").Body.String()
		requests := func(name string) map[string][3]string {
			all := map[string][3]string{
				"inspect": {"GET", "/v1/volumes/" + name, ""}, "rm": {"DELETE", "/v1/volumes/" + name, ""},
				"snapshot": {"POST", "/v1/volumes/" + name + "/snapshot", `{"name":"x"}`},
				"clone":    {"POST", "/v1/volumes", fmt.Sprintf(`{"name":"x","from":%q}`, name)},
			}
			for _, mode := range []string{"private", "clone", "share-ro", "move"} {
				all["fork with "+mode] = [3]string{"POST", "/v1/sandboxes", fork(name, mode)}
			}
			return all
		}
		for asker, text := range askers[owner] {
			for _, v := range into[[]api.Volume](t, as(b, text, "GET", "/v1/volumes", ""), 200) {
				if cmp.Or(v.Tenant, "the operator") == owner {
					t.Errorf("%s sees %+v", asker, v)
				}
			}
			for what, r := range requests(absent) {
				want := as(b, text, r[0], r[1], r[2])
				if e := wantError(t, want, api.CodeNotFound); e.Reason != api.ReasonVolumeNotFound {
					t.Errorf("%s of a volume that does not exist: %+v", what, e)
				}
				for state, name := range volumes {
					r := requests(name)[what]
					got := as(b, text, r[0], r[1], r[2])
					if same(got, name) != same(want, absent) {
						t.Errorf("%s, %s of %s's volume (%s): %d %s\nwant as for no volume: %d %s", asker, what, owner, state,
							got.Code, got.Body, want.Code, want.Body)
					}
				}
			}
		}
		if after := as(b, own, "GET", "/v1/volumes", "").Body.String(); after != before {
			t.Errorf("the volumes of %s were %s\nand are %s", owner, before, after)
		}
	}
	for _, name := range []string{"acme-free", "data"} { // the same names are free for others
		own := into[api.Volume](t, as(b, askers["the operator"]["a tenant's key that forks"], "POST", "/v1/volumes",
			fmt.Sprintf(`{"name":%q}`, name)), 201)
		if own.Tenant != "evil" {
			t.Errorf("%+v", own)
		}
	}
}

// A public snapshot contains the content of its volumes, and says so. Its users have clones, not the volume.
func TestVolumesOfAPublicSnapshot(t *testing.T) {
	b := newBench(t)
	_, evil, err := b.keys.Create(keys.Spec{Name: "k", Tenant: "evil", Scopes: principal.All})
	if err != nil {
		t.Fatal(err)
	}
	into[api.Volume](t, b.do("POST", "/v1/volumes", `{"name":"data","size_mib":64}`), 201)
	sb := into[[]api.SandboxInfo](t, b.do("POST", "/v1/sandboxes", `{"snapshot_tag":"py","volumes":[{"name":"data","path":"/data"}]}`), 201)[0]
	into[api.BranchResult](t, b.do("POST", "/v1/sandboxes/"+sb.ID+"/branch", `{"tag":"with"}`), 201)
	public := into[api.SnapshotInfo](t, b.do("PUT", "/v1/snapshots/with/public", `{"public":true}`), 200)
	want := api.SnapshotVolume{Name: "data", Path: "/data", SizeMiB: 64}
	if len(public.Volumes) != 1 || public.Volumes[0] != want {
		t.Errorf("the snapshot has %+v, want %+v", public.Volumes, want)
	}
	child := into[[]api.SandboxInfo](t, as(b, evil, "POST", "/v1/sandboxes", `{"snapshot_tag":"with"}`), 201)[0]
	if len(child.Volumes) != 1 || child.Volumes[0].Mode != api.VolumeClone {
		t.Errorf("a tenant's child has %+v", child.Volumes)
	}
	wantError(t, as(b, evil, "GET", "/v1/volumes/data", ""), api.CodeNotFound)
	into[any](t, as(b, evil, "POST", "/v1/sandboxes/"+child.ID+"/pause", `{}`), 200)
	move := `{"snapshot_tag":"with","volumes":[{"name":"data","path":"/d","mode":"move"}]}`
	if e := wantError(t, as(b, evil, "POST", "/v1/sandboxes", move), api.CodeNotFound); e.Reason != api.ReasonVolumeNotFound {
		t.Errorf("a tenant moves the volume of which it has a clone: %+v", e)
	}
	if w := as(b, evil, "DELETE", "/v1/sandboxes/"+child.ID, ""); w.Code != 204 {
		t.Error(w.Code, w.Body)
	}
	if v := into[api.Volume](t, b.do("GET", "/v1/volumes/data", ""), 200); v.Sandbox != sb.ID {
		t.Errorf("the volume is in %q, want %s", v.Sandbox, sb.ID)
	}
}
