package imagebuild

import (
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/forkd/forkd/api"
)

func TestServiceOfAnImage(t *testing.T) {
	check := func(h api.ImageHealthcheck) Config {
		return Config{Cmd: []string{"s"}, Healthcheck: &h}
	}
	for _, c := range []struct {
		name  string
		in    Config
		ready *api.ServiceReady
		live  *api.ServiceLiveness
		err   string
	}{
		{name: "no check", in: Config{Cmd: []string{"s"}}},
		{name: "NONE", in: check(api.ImageHealthcheck{Test: []string{"NONE"}})},
		{name: "defaults", in: check(api.ImageHealthcheck{Test: []string{"CMD", "c"}}),
			ready: &api.ServiceReady{Command: []string{"c"}, TimeoutSecs: 90, IntervalMS: 1000},
			live:  &api.ServiceLiveness{IntervalSecs: 30, TimeoutSecs: 30, FailureThreshold: 3}},
		{name: "fast", in: check(api.ImageHealthcheck{Test: []string{"CMD", "c"}, IntervalSecs: 0.001, TimeoutSecs: 0.001, Retries: 1}),
			ready: &api.ServiceReady{Command: []string{"c"}, TimeoutSecs: 60, IntervalMS: 10},
			live:  &api.ServiceLiveness{IntervalSecs: 1, TimeoutSecs: 1, FailureThreshold: 1}},
		{name: "slow", in: check(api.ImageHealthcheck{Test: []string{"CMD", "c"}, IntervalSecs: 86400, StartPeriodSecs: 86400}),
			ready: &api.ServiceReady{Command: []string{"c"}, TimeoutSecs: 86400, IntervalMS: 1000},
			live:  &api.ServiceLiveness{IntervalSecs: 86400, TimeoutSecs: 30, FailureThreshold: 3}},
		{name: "the image's shell", in: Config{Cmd: []string{"s"}, Shell: []string{"/bin/bash", "-c"},
			Healthcheck: &api.ImageHealthcheck{Test: []string{"CMD-SHELL", "c d"}, StartPeriodSecs: 10}},
			ready: &api.ServiceReady{Command: []string{"/bin/bash", "-c", "c d"}, TimeoutSecs: 100, IntervalMS: 1000},
			live:  &api.ServiceLiveness{IntervalSecs: 30, TimeoutSecs: 30, FailureThreshold: 3}},
		{name: "no program", err: "neither an entrypoint"},
		{name: "an init", in: Config{Entrypoint: []string{"/sbin/init"}},
			ready: &api.ServiceReady{Command: []string{"/run/forkd/forkd-init", "--ready", "/sbin/init"}, TimeoutSecs: 300, IntervalMS: 1000}},
		{name: "a signal", in: Config{Cmd: []string{"s"}, StopSignal: "65"}, err: `stop signal "65"`},
		{name: "below a millisecond", in: check(api.ImageHealthcheck{Test: []string{"CMD", "c"}, TimeoutSecs: 0.0009}), err: "timeout of 900µs"},
		{name: "beyond time", in: check(api.ImageHealthcheck{Test: []string{"CMD", "c"}, TimeoutSecs: 1e300}), err: "timeout of"},
		{name: "before time", in: check(api.ImageHealthcheck{Test: []string{"CMD", "c"}, TimeoutSecs: math.Inf(-1)}), err: "timeout of"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := c.in.Service()
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("got %v, want %q", err, c.err)
				}
				return
			}
			if err != nil || !reflect.DeepEqual(got.Ready, c.ready) || !reflect.DeepEqual(got.Liveness, c.live) {
				t.Errorf("got %+v, %+v, %v", got.Ready, got.Liveness, err)
			}
		})
	}
}
