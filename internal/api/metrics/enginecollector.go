package metrics

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forkd/forkd/internal/domain/drain"
	"github.com/forkd/forkd/internal/domain/roles"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// engineCollector reads the engine once for each scrape.
type engineCollector struct {
	engine  roles.Engine
	images  func(context.Context) (int64, error) // may be nil
	tenants *tenantLabels
	drain   *drain.Drain
	gauges  engineGauges

	mu   sync.Mutex            // guards the fields below; only scrapes take it, for their whole duration
	last map[string]sandboxUse // nil before the first scrape
	sums useSums
}

// sandboxUse is one sandbox's use of resources since its VM was created.
type sandboxUse struct {
	cpu                    time.Duration
	read, written, in, out int64
}

// useSums are sums over all sandboxes since the first scrape, also over ended ones.
type useSums struct {
	cpu                    map[string]float64 // seconds, by tenant's label
	read, written, in, out float64
}

// engineGauges describe the metrics of an engineCollector.
type engineGauges struct {
	snapshots, damaged, snapshotsBy, store       *prometheus.Desc
	active, sandboxes, hung, memory              *prometheus.Desc
	wanted, ready, pools                         *prometheus.Desc
	draining                                     *prometheus.Desc
	hostBytes, hostSlots, pressure, admits       *prometheus.Desc
	tenantSandboxes, tenantMemory, tenantStore   *prometheus.Desc
	tenantCPU, netBytes, diskBytes, vmsInTheMake *prometheus.Desc
}

func newEngineCollector(e roles.Engine, images func(context.Context) (int64, error), tenants *tenantLabels,
	dr *drain.Drain) *engineCollector {
	d := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &engineCollector{engine: e, images: images, tenants: tenants, drain: dr,
		sums: useSums{cpu: map[string]float64{}},
		gauges: engineGauges{
			snapshots:   d("forkd_snapshots", "Snapshots in the store."),
			damaged:     d("forkd_snapshots_damaged", "Snapshots with a damaged layer."),
			snapshotsBy: d("forkd_snapshots_by_status", "Snapshots, by status.", "status"),
			store:       d("forkd_store_bytes", "Bytes in the store, by kind.", "kind"),

			active:    d("forkd_sandboxes_active", "Sandboxes that run, or are stalled for lack of disk space."),
			sandboxes: d("forkd_sandboxes", "Sandboxes, by status.", "status"),
			hung:      d("forkd_sandboxes_hung", "Sandboxes with a guest kernel that spins at one address."),
			memory:    d("forkd_sandbox_memory_bytes", "Memory of all sandboxes, by kind.", "kind"),

			wanted: d("forkd_pool_shells_wanted", "Shells to keep ready."),
			ready:  d("forkd_pool_shells_ready", "Ready shells. A plain shell counts in each pool of its shape."),
			pools:  d("forkd_pool_shells", "Shells, by the guest's memory.", "size", "state"),

			hostBytes:    d("forkd_host_bytes", "The host's memory and the store's disk.", "resource", "kind"),
			hostSlots:    d("forkd_host_slots", "The host's descriptors and threads.", "resource", "kind"),
			pressure:     d("forkd_host_pressure_ratio", "Part of the last 10 s in which tasks waited.", "resource"),
			admits:       d("forkd_host_admits", "1 for the current admission of VMs, otherwise 0.", "level"),
			draining:     d("forkd_draining", "1 while the daemon is being drained, otherwise 0."),
			vmsInTheMake: d("forkd_vms_coming", "VMs that are being created."),

			tenantSandboxes: d("forkd_tenant_sandboxes", "Sandboxes with a VM, by tenant.", "tenant"),
			tenantMemory:    d("forkd_tenant_memory_bytes", "Private memory of sandboxes, by tenant.", "tenant"),
			tenantStore:     d("forkd_tenant_store_bytes", "Own layers of snapshots, by tenant.", "tenant"),
			tenantCPU:       d("forkd_tenant_cpu_seconds_total", "CPU time of sandboxes, by tenant.", "tenant"),
			netBytes:        d("forkd_network_bytes_total", "Traffic of sandboxes.", "direction"),
			diskBytes:       d("forkd_disk_bytes_total", "Disk transfers of sandboxes.", "direction"),
		}}
}

// Describe implements prometheus.Collector.
func (c *engineCollector) Describe(to chan<- *prometheus.Desc) {
	g := c.gauges
	for _, d := range []*prometheus.Desc{g.snapshots, g.damaged, g.snapshotsBy, g.store, g.active, g.sandboxes, g.hung,
		g.memory, g.wanted, g.ready, g.pools, g.hostBytes, g.hostSlots, g.pressure, g.admits, g.tenantSandboxes,
		g.tenantMemory, g.tenantStore, g.tenantCPU, g.netBytes, g.diskBytes, g.vmsInTheMake, g.draining} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *engineCollector) Collect(to chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := samples{to}
	c.collectStore(out)
	c.collectSandboxes(out)
	c.collectPools(out)
	c.collectHost(out)
	draining := 0.0
	if c.drain.On() {
		draining = 1
	}
	out.gauge(c.gauges.draining, draining)
}

// samples sends values.
type samples struct{ to chan<- prometheus.Metric }

func (s samples) gauge(d *prometheus.Desc, value float64, labels ...string) {
	s.to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
}

func (s samples) counter(d *prometheus.Desc, value float64, labels ...string) {
	s.to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, value, labels...)
}

// by sends a gauge for each value of its label.
func (s samples) by(d *prometheus.Desc, values map[string]float64) {
	for label, v := range values {
		s.gauge(d, v, label)
	}
}

// zeros returns 0 for each label.
func zeros[T ~string](labels ...T) map[string]float64 {
	out := map[string]float64{}
	for _, l := range labels {
		out[string(l)] = 0
	}
	return out
}

func (c *engineCollector) collectStore(out samples) {
	list, err := c.engine.Snapshots.ListSnapshots(context.Background())
	if err != nil {
		return // no value is better than a wrong one
	}
	statuses := []sandbox.SnapshotStatus{sandbox.SnapshotWriting, sandbox.SnapshotReady, sandbox.SnapshotFailed}
	by, bytes, owners, damaged := zeros(statuses...), zeros("memory", "disk", "vm_state"), zeros(operatorLabel), 0
	for _, s := range list {
		if len(s.Damaged) > 0 {
			damaged++
		}
		by[oneOf(s.Status, statuses...)]++
		bytes["memory"] += float64(s.MemoryOwnBytes)
		bytes["disk"] += float64(s.DiskOwnBytes)
		bytes["vm_state"] += float64(s.VMStateBytes)
		owners[c.tenants.of(s.Owner)] += float64(s.MemoryOwnBytes + s.DiskOwnBytes + s.VMStateBytes)
	}
	if c.images != nil {
		if n, err := c.images(context.Background()); err == nil {
			bytes["images"] = float64(n)
		}
	}
	out.gauge(c.gauges.snapshots, float64(len(list)))
	out.gauge(c.gauges.damaged, float64(damaged))
	out.by(c.gauges.snapshotsBy, by)
	out.by(c.gauges.store, bytes)
	out.by(c.gauges.tenantStore, owners)
}

func (c *engineCollector) collectSandboxes(out samples) {
	statuses := []sandbox.Status{sandbox.StatusRunning, sandbox.StatusFailed, sandbox.StatusPaused, sandbox.StatusPausing,
		sandbox.StatusResuming, sandbox.StatusStalled}
	by, memory := zeros(statuses...), zeros("guest", "private", "charged")
	owners, ownersMemory := zeros(operatorLabel), zeros(operatorLabel)
	active, hung := 0, 0
	list := c.engine.Sandboxes.List()
	for _, i := range list {
		by[oneOf(i.Status, statuses...)]++
		if i.Status != sandbox.StatusFailed {
			active++
		}
		if i.Hang != "" {
			hung++
		}
		memory["private"] += float64(i.OwnMemory)
		if i.Use != nil {
			memory["charged"] += float64(i.Use.Memory)
		}
		if i.Status == sandbox.StatusFailed || i.Status == sandbox.StatusPaused {
			continue
		}
		memory["guest"] += float64(i.Shape.MemoryBytes())
		owners[c.tenants.of(i.Owner)]++
		ownersMemory[c.tenants.of(i.Owner)] += float64(i.OwnMemory)
	}
	out.gauge(c.gauges.active, float64(active))
	out.gauge(c.gauges.hung, float64(hung))
	out.by(c.gauges.sandboxes, by)
	out.by(c.gauges.memory, memory)
	out.by(c.gauges.tenantSandboxes, owners)
	out.by(c.gauges.tenantMemory, ownersMemory)
	c.addUseLocked(list)
	sums := c.sums
	for tenant, cpu := range sums.cpu {
		out.counter(c.gauges.tenantCPU, cpu, tenant)
	}
	out.counter(c.gauges.netBytes, sums.in, "in")
	out.counter(c.gauges.netBytes, sums.out, "out")
	out.counter(c.gauges.diskBytes, sums.read, "read")
	out.counter(c.gauges.diskBytes, sums.written, "written")
}

// addUseLocked adds the use since the last scrape to the sums. The first scrape is the start: the
// sandboxes of an earlier daemon were counted there.
func (c *engineCollector) addUseLocked(list []sandbox.Info) {
	now := make(map[string]sandboxUse, len(list))
	defer func() { c.last = now }()
	for _, i := range list {
		was := c.last[i.ID]
		u := was
		if i.Use != nil {
			u.cpu, u.read, u.written = i.Use.CPU, i.Use.DiskRead, i.Use.DiskWritten
			if n := i.Use.Net; n.In != 0 || n.Out != 0 { // 0 also if forkd-net does not answer
				u.in, u.out = n.In, n.Out
			}
		}
		if now[i.ID] = u; c.last == nil {
			was = u
		}
		c.sums.cpu[c.tenants.of(i.Owner)] += grown(was.cpu, u.cpu) / float64(time.Second)
		c.sums.read += grown(was.read, u.read)
		c.sums.written += grown(was.written, u.written)
		c.sums.in += grown(was.in, u.in)
		c.sums.out += grown(was.out, u.out)
	}
}

// grown returns the growth of a counter. A lower value than before is from a new VM, which began at 0.
func grown[T ~int64](was, is T) float64 {
	if is < was {
		return float64(is)
	}
	return float64(is - was)
}

func (c *engineCollector) collectPools(out samples) {
	wanted, ready := zeros(largerPool), zeros(largerPool)
	for _, s := range poolSizes {
		wanted[s.name], ready[s.name] = 0, 0
	}
	sumWanted, sumReady := 0, 0
	for _, p := range c.engine.Pools.Pools() {
		size := poolSize(p.Shape.MemoryMiB)
		wanted[size] += float64(p.Wanted)
		ready[size] += float64(p.Ready)
		sumWanted += p.Wanted
		sumReady += p.Ready
	}
	out.gauge(c.gauges.wanted, float64(sumWanted))
	out.gauge(c.gauges.ready, float64(sumReady))
	for size := range wanted {
		out.gauge(c.gauges.pools, wanted[size], size, "wanted")
		out.gauge(c.gauges.pools, ready[size], size, "ready")
	}
}

func (c *engineCollector) collectHost(out samples) {
	h, err := c.engine.Hosts.Capacity()
	if err != nil {
		return
	}
	for _, r := range h.Resources {
		of := c.gauges.hostBytes
		switch r.Name {
		case sandbox.ResourceMemory, sandbox.ResourceDisk:
		case sandbox.ResourceDescriptors, sandbox.ResourceThreads:
			of = c.gauges.hostSlots
		default:
			continue
		}
		for kind, v := range map[string]int64{"total": r.Total, "free": r.Free, "reserve": r.Reserve,
			"promised": r.Promised, "may_promise": r.MayPromise} {
			out.gauge(of, float64(v), r.Name, kind)
		}
	}
	for _, p := range h.Pressure {
		if label := oneOf(p.Name, "cpu", "memory", "io"); label != labelOther {
			out.gauge(c.gauges.pressure, p.Some/100, label)
		}
	}
	for _, level := range []string{sandbox.AdmitsAll, sandbox.AdmitsFewer, sandbox.AdmitsNone} {
		now := 0.0
		if h.Admits == level {
			now = 1
		}
		out.gauge(c.gauges.admits, now, level)
	}
	out.gauge(c.gauges.vmsInTheMake, float64(h.Coming))
}
