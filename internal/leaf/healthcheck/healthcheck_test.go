package healthcheck_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/leaf/healthcheck"
)

var sh = []string{"/bin/sh", "-c"}

func TestResolve(t *testing.T) {
	type declared = healthcheck.Declared
	type check = healthcheck.Check
	for _, c := range []struct {
		name string
		in   declared
		want *check
		err  string
	}{
		{name: "no test"},
		{name: "none", in: declared{Test: []string{"NONE"}, Interval: time.Nanosecond}},
		{name: "defaults", in: declared{Test: []string{"CMD", "/check", "a b"}},
			want: &check{[]string{"/check", "a b"}, 30 * time.Second, 30 * time.Second, 0, 3}},
		{name: "a shell", in: declared{Test: []string{"CMD-SHELL", "curl -f localhost || exit 1"}, Interval: time.Second,
			Timeout: time.Millisecond, StartPeriod: time.Minute, Retries: 1},
			want: &check{[]string{"/bin/sh", "-c", "curl -f localhost || exit 1"}, time.Second, time.Millisecond, time.Minute, 1}},
		{name: "another form", in: declared{Test: []string{"HTTP", "/"}}, err: "want CMD"},
		{name: "CMD alone", in: declared{Test: []string{"CMD"}}, err: "want CMD"},
		{name: "an empty program", in: declared{Test: []string{"CMD", ""}}, err: "want CMD"},
		{name: "two lines", in: declared{Test: []string{"CMD-SHELL", "a", "b"}}, err: "want CMD"},
		{name: "below a millisecond", in: declared{Test: []string{"CMD", "c"}, Interval: 999 * time.Microsecond},
			err: "interval of 999µs: want 1ms to 24h"},
		{name: "negative", in: declared{Test: []string{"CMD", "c"}, Timeout: -time.Second}, err: "timeout of -1s"},
		{name: "a start period without end", in: declared{Test: []string{"CMD", "c"}, StartPeriod: 25 * time.Hour},
			err: "start period of 25h"},
		{name: "negative retries", in: declared{Test: []string{"CMD", "c"}, Retries: -1}, err: "-1 retries"},
		{name: "retries without end", in: declared{Test: []string{"CMD", "c"}, Retries: 1 << 40}, err: "retries: want 1 to 1000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := healthcheck.Resolve(c.in, sh)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("got %v, want %q", err, c.err)
				}
				return
			}
			if err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v, %v, want %+v", got, err, c.want)
			}
		})
	}
}

// A resolved check has no value out of its limits, and its patience does not overflow.
func FuzzResolve(f *testing.F) {
	f.Add("CMD-SHELL", "true", int64(0), int64(0), int64(0), 0)
	f.Add("CMD", "/c", int64(1e6), int64(1<<62), int64(-1), -1)
	f.Add("NONE", "", int64(1), int64(1), int64(1), 1)
	f.Fuzz(func(t *testing.T, kind, arg string, interval, timeout, start int64, retries int) {
		c, err := healthcheck.Resolve(healthcheck.Declared{Test: []string{kind, arg}, Interval: time.Duration(interval),
			Timeout: time.Duration(timeout), StartPeriod: time.Duration(start), Retries: retries}, sh)
		if err != nil || c == nil {
			return
		}
		if c.Interval < time.Millisecond || c.Timeout < time.Millisecond || c.StartPeriod < 0 || c.Retries < 1 ||
			c.Patience() < c.StartPeriod || len(c.Command) == 0 || c.Command[0] == "" {
			t.Errorf("passed: %+v", c)
		}
	})
}
