package e2bapi_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/domain/keys"
	"github.com/forkd/forkd/internal/domain/principal"
)

// A volume of another tenant is answered like one that does not exist, by name and by id, free and in use.
func TestVolumesOfAnotherTenant(t *testing.T) {
	d := volumeDaemon(t)
	type made struct{ VolumeID, Name string }
	theirs := map[string]string{}
	for _, state := range []string{"free", "held"} {
		v := want[made](t, d.as(d.acme, "POST", "/volumes", fmt.Sprintf(`{"name":%q}`, state)), 201)
		theirs[state], theirs[state+" by its id"] = v.Name, v.VolumeID
	}
	mount := func(name string) string {
		return fmt.Sprintf(`{"templateID":"open","volumeMounts":[{"name":%q,"path":"/data"}]}`, name)
	}
	want[created](t, d.as(d.acme, "POST", "/v2/sandboxes", mount("held")), 201)
	const absent = "absent"
	for who, text := range map[string]string{"another tenant": d.evil, "the operator": apiKey,
		"a key that forks": d.key(keys.Spec{Name: "f", Tenant: "evil", Scopes: principal.Read | principal.Fork | principal.Run})} {
		if list := want[[]made](t, d.as(text, "GET", "/volumes", ""), 200); len(list) != 0 {
			t.Errorf("%s sees %+v", who, list)
		}
		for what, ask := range map[string]func(name string) answer{
			"get":    func(name string) answer { return d.as(text, "GET", "/volumes/"+name, "") },
			"delete": func(name string) answer { return d.as(text, "DELETE", "/volumes/"+name, "") },
			"create": func(name string) answer { return d.as(text, "POST", "/v2/sandboxes", mount(name)) },
		} {
			no := ask(absent)
			wantError(t, no, 404)
			for state, name := range theirs {
				got := ask(name)
				if got.StatusCode != no.StatusCode || strings.ReplaceAll(got.body, name, absent) != no.body {
					t.Errorf("%s, %s of a volume that is %s: %s %s, want as for no volume: %s", who, what, state, got.Status, got.body,
						no.body)
				}
			}
		}
	}
	if list := want[[]made](t, d.as(d.acme, "GET", "/volumes", ""), 200); len(list) != 2 {
		t.Errorf("the owner has %+v", list)
	}
}
