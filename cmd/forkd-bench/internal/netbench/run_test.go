package netbench

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/forkd/forkd/cmd/forkd-bench/internal/measure/measuretest"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/netnative"
)

func TestHoweverItEndsNothingIsLeft(t *testing.T) {
	measuretest.InterruptEach(t, func(ctx context.Context, d *measuretest.Daemon) error {
		_, err := Run(ctx, Config{Client: d.Client, Tag: "py", N: 2, Pool: 2, Rounds: 2, Say: func(string) {}})
		return err
	})
}

func TestForksWithNetworkBesideThoseWithout(t *testing.T) {
	d := measuretest.Start(t)
	all, err := Run(t.Context(), Config{Client: d.Client, Tag: "py", N: 1, Rounds: 2, Say: func(string) {}})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 3 || all[0].Name != "fork_armed" || all[1].Name != "fork_ready" || all[2].Name != "idle_child" {
		t.Fatalf("%+v", all)
	}
	if f := all[1]; f.By != netnative.Ratio || f.Result <= 0 || f.High < f.Low || f.AtMost != forkMark || f.Met == nil {
		t.Errorf("%+v", f)
	}
	if f := all[2]; f.By != netnative.Difference || f.Result != f.Value-f.Floor {
		t.Errorf("%+v", f)
	}
	d.Empty()
}

func TestBytesAreCarriedAsTheGuestAsks(t *testing.T) {
	guest, far := net.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- Answer(far); far.Close() }()
	io.WriteString(guest, "send 300000\n")
	if n, err := io.CopyN(io.Discard, guest, 300000); err != nil {
		t.Fatalf("%d bytes: %v", n, err)
	}
	io.WriteString(guest, "take 300000\n")
	guest.Write(make([]byte, 300000))
	if b := make([]byte, 1); true {
		if _, err := io.ReadFull(guest, b); err != nil || b[0] != '.' {
			t.Errorf("%q: %v", b, err)
		}
	}
	guest.Close()
	if err := <-ended; err != nil && !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
	for _, bad := range []string{"send -1\n", "give 1\n", "send 99999999999999\n", "send x\n"} {
		var out bytes.Buffer
		err := Answer(struct {
			io.Reader
			io.Writer
		}{strings.NewReader(bad), &out})
		if err == nil || out.Len() > 0 {
			t.Errorf("%q: %v, %d bytes", bad, err, out.Len())
		}
	}
}

func TestPlot(t *testing.T) {
	f := func(name string, value, floor float64, by netnative.By) netnative.Figure {
		return netnative.Figure{Name: name, Value: value}.Beside(floor, by)
	}
	native := []netnative.Figure{
		f("connect_relayed_p50", 300, 50, netnative.Difference), f("connect_handed_p50", 200, 50, netnative.Difference),
		f("answer_sni_p50", 400, 90, netnative.Difference), f("bulk_handed_to_guest", 1300, 300, netnative.Ratio),
		f("attach_64", 15, 3, netnative.Alone).Most(20),
	}
	guests := []netnative.Figure{f("fork_ready", 101, 100, netnative.Ratio), f("idle_child", 2, 1, netnative.Difference)}
	drawn := Plot(native, guests)
	if len(drawn.Panels) != 4 || drawn.Panels[2].Aim != 20 {
		t.Fatalf("%+v", drawn.Panels)
	}
	if p := drawn.Panels[0]; len(p.Ticks) != 3 || p.Series[0].Values[1] != 200 || p.Series[1].Values[2] != 90 {
		t.Errorf("%+v", p)
	}
	if p := drawn.Panels[3]; len(p.Ticks) != 1 || p.Series[0].Values[0] != 1.01 {
		t.Errorf("%+v", p)
	}
	var b bytes.Buffer
	if err := drawn.SVG(&b); err != nil {
		t.Fatal(err)
	}
	words := texts(t, b.Bytes())
	for _, want := range []string{
		"The network, beside its floors", "handed over", "direct", "loopback", "64 VMs", "fork ready", "ratio", "us a VM",
	} {
		if !strings.Contains(words, "|"+want+"|") {
			t.Errorf("the drawing lacks %q: %s", want, words)
		}
	}
	if len(Plot(native, nil).Panels) != 3 || len(Plot(nil, nil).Panels) != 0 {
		t.Error("there are panels of nothing")
	}
}

// texts returns the texts of a drawing, which must be valid XML.
func texts(t *testing.T, svg []byte) string {
	t.Helper()
	all := "|"
	for dec := xml.NewDecoder(bytes.NewReader(svg)); ; {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("it is no XML: %v", err)
		}
		if text, ok := token.(xml.CharData); ok {
			all += strings.TrimSpace(string(text)) + "|"
		}
	}
}
