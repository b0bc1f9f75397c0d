package procnode

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// pod runs the container of a pod. Pods with several containers are refused.
type pod struct {
	cluster *Cluster
	node    *node
	object  *core.Pod // as it was when the pod was found
	address string
	folder  string
	root    string // of the container
	started time.Time
	ending  chan struct{}
	once    sync.Once
	grace   time.Duration // set before ending is closed

	mu     sync.Mutex // guards the fields below
	status containerStatus
}

// containerStatus is what is reported.
type containerStatus struct {
	phase    core.PodPhase
	ready    bool
	restarts int
	waiting  string // reason
	message  string
	exit     int
}

func newPod(s *Cluster, n *node, o *core.Pod, address string) *pod {
	folder := filepath.Join(n.root, "pods", string(o.UID))
	return &pod{cluster: s, node: n, object: o, address: address, folder: folder, root: filepath.Join(folder, "root"),
		started: time.Now(), ending: make(chan struct{}), status: containerStatus{phase: core.PodPending}}
}

// end makes the pod end within a time.
func (p *pod) end(grace time.Duration) {
	p.once.Do(func() {
		p.grace = grace
		close(p.ending)
	})
}

func (p *pod) ended() bool {
	select {
	case <-p.ending:
		return true
	default:
		return p.cluster.context.Err() != nil
	}
}

// run runs the pod until it is deleted.
func (p *pod) run() {
	defer p.clear()
	for !p.ended() {
		err := p.prepare(p.cluster.context)
		if err == nil {
			p.work()
			break
		}
		p.report(func(s *containerStatus) { s.waiting, s.message = "CreateContainerError", err.Error() })
		p.clear()
		p.sleep(time.Second)
	}
	select {
	case <-p.ending:
	case <-p.cluster.context.Done():
		return
	}
	now := int64(0)
	err := p.cluster.kube.CoreV1().Pods(p.object.Namespace).Delete(p.cluster.context, p.object.Name,
		meta.DeleteOptions{GracePeriodSeconds: &now, Preconditions: &meta.Preconditions{UID: &p.object.UID}})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && p.cluster.context.Err() == nil {
		p.cluster.log("delete the pod %s: %v", p.object.Name, err)
	}
}

// sleep waits, unless the pod ends.
func (p *pod) sleep(d time.Duration) {
	select {
	case <-p.ending:
	case <-p.cluster.context.Done():
	case <-time.After(d):
	}
}

// prepare makes the root folder, with the image and the volumes.
func (p *pod) prepare(ctx context.Context) error {
	if len(p.object.Spec.Containers) != 1 || len(p.object.Spec.InitContainers) > 0 {
		return fmt.Errorf("procnode runs pods with one container")
	}
	c := p.object.Spec.Containers[0]
	image, err := p.cluster.conf.Image(c.Image)
	if err != nil {
		return fmt.Errorf("ErrImagePull: %w", err)
	}
	if err := os.MkdirAll(p.root, 0o755); err != nil { // #nosec G301 -- containers' users read it
		return err
	}
	if err := bind(p.root, p.root, false); err != nil {
		return err
	}
	for from, to := range map[string]string{image: "usr/lib/forkd", p.cluster.hosts: "etc/hosts",
		"/dev/null": "dev/null"} {
		if err := bind(from, filepath.Join(p.root, to), from != image); err != nil {
			return err
		}
	}
	if err := p.allocate(ctx, c); err != nil {
		return err
	}
	folders := map[string]string{}
	for _, v := range p.object.Spec.Volumes {
		if folders[v.Name], err = p.volume(ctx, v); err != nil {
			return fmt.Errorf("volume %s: %w", v.Name, err)
		}
	}
	for _, m := range c.VolumeMounts {
		at := filepath.Join(p.root, m.MountPath)
		if err := bind(folders[m.Name], at, false); err != nil {
			return err
		}
		if m.ReadOnly {
			if err := readOnly(at); err != nil {
				return err
			}
		}
	}
	if s := c.SecurityContext; s != nil && s.ReadOnlyRootFilesystem != nil && *s.ReadOnlyRootFilesystem {
		return readOnly(p.root)
	}
	return nil
}

// allocate gets the devices of extended resources.
func (p *pod) allocate(ctx context.Context, c core.Container) error {
	for name := range c.Resources.Limits {
		if name == core.ResourceCPU || name == core.ResourceMemory {
			continue
		}
		list, err := p.node.devices.allocate(ctx, string(name))
		if err != nil {
			return err
		}
		for _, d := range list {
			if err := bind(filepath.Join(p.node.root, d.HostPath), filepath.Join(p.root, d.ContainerPath), true); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *pod) clear() {
	unmount(p.root)
	if err := os.RemoveAll(p.folder); err != nil {
		p.cluster.log("remove the pod %s: %v", p.object.Name, err)
	}
}

// report changes the status, and writes it.
func (p *pod) report(change func(*containerStatus)) {
	p.mu.Lock()
	before := p.status
	change(&p.status)
	now := p.status
	p.mu.Unlock()
	if now == before || p.cluster.context.Err() != nil {
		return
	}
	_, err := p.cluster.kube.CoreV1().Pods(p.object.Namespace).Patch(p.cluster.context, p.object.Name,
		types.StrategicMergePatchType, patchStatus(p.podStatus(now)), meta.PatchOptions{}, "status")
	if err != nil && !apierrors.IsNotFound(err) && p.cluster.context.Err() == nil {
		p.cluster.log("status of the pod %s: %v", p.object.Name, err)
	}
}

func (p *pod) podStatus(s containerStatus) core.PodStatus {
	c, at := p.object.Spec.Containers[0], meta.NewTime(p.started)
	one := core.ContainerStatus{Name: c.Name, Image: c.Image, ImageID: c.Image, Ready: s.ready,
		RestartCount: int32(s.restarts)} // #nosec G115 -- small
	running := s.phase == core.PodRunning && s.waiting == ""
	one.Started = &running
	switch {
	case s.waiting != "":
		one.State.Waiting = &core.ContainerStateWaiting{Reason: s.waiting, Message: s.message}
	case s.phase == core.PodRunning:
		one.State.Running = &core.ContainerStateRunning{StartedAt: meta.Now()}
	case s.phase != core.PodPending:
		one.State.Terminated = &core.ContainerStateTerminated{ExitCode: int32(s.exit)} // #nosec G115 -- an exit code
	}
	condition := func(kind core.PodConditionType, yes bool) core.PodCondition {
		o := core.PodCondition{Type: kind, Status: core.ConditionFalse, LastTransitionTime: meta.Now()}
		if yes {
			o.Status = core.ConditionTrue
		}
		return o
	}
	return core.PodStatus{Phase: s.phase, HostIP: "10.0.0.1", PodIP: p.address,
		PodIPs: []core.PodIP{{IP: p.address}}, StartTime: &at, ContainerStatuses: []core.ContainerStatus{one},
		Conditions: []core.PodCondition{condition(core.PodInitialized, true),
			condition(core.ContainersReady, s.ready), condition(core.PodReady, s.ready)}}
}
