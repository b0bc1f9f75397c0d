package procnode

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// work runs the container, again after its end if the pod wants it, until the pod ends.
func (p *pod) work() {
	for !p.ended() {
		code, err := p.life()
		if p.ended() {
			return
		}
		p.cluster.log("%s ended with %d: %v\n%s", p.object.Name, code, err, p.tail())
		if p.object.Spec.RestartPolicy == core.RestartPolicyNever {
			p.report(func(s *containerStatus) {
				s.phase, s.exit, s.ready, s.waiting = core.PodSucceeded, code, false, ""
				if code != 0 || err != nil {
					s.phase = core.PodFailed
				}
			})
			return
		}
		p.report(func(s *containerStatus) { s.ready, s.waiting, s.restarts = false, "CrashLoopBackOff", s.restarts+1 })
		p.sleep(time.Second)
	}
}

// life runs the container once, and returns its exit code.
func (p *pod) life() (int, error) {
	c := p.object.Spec.Containers[0]
	env, err := p.environment(c)
	if err != nil {
		return -1, err
	}
	args := append(append([]string{}, c.Command...), c.Args...)
	for i := range args {
		args[i] = strings.ReplaceAll(expand(args[i], env), "0.0.0.0", p.address)
	}
	cmd, err := p.command(args, env)
	if err != nil {
		return -1, err
	}
	cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID
	defer cmd.Stdout.(*os.File).Close()
	if err := cmd.Start(); err != nil {
		return -1, err
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_ = cmd.Wait()
	}()
	p.report(func(s *containerStatus) { s.phase, s.waiting, s.ready = core.PodRunning, "", c.ReadinessProbe == nil })
	p.watch(c, gone, cmd)
	if !exited(gone) { // the pod or the test ends
		if c.Lifecycle != nil && c.Lifecycle.PreStop != nil && p.cluster.context.Err() == nil {
			p.preStop(c.Lifecycle.PreStop.Exec.Command, env)
		}
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-gone:
		case <-p.cluster.context.Done():
		case <-time.After(p.grace):
		}
		_ = cmd.Process.Kill()
		<-gone
	}
	return cmd.ProcessState.ExitCode(), nil
}

func exited(gone <-chan struct{}) bool {
	select {
	case <-gone:
		return true
	default:
		return false
	}
}

// command returns a program in the container's root folder, as the container's user.
func (p *pod) command(args []string, env map[string]string) (*exec.Cmd, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = "/"
	for k, v := range env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	log, err := os.OpenFile(p.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: p.root}
	s := p.object.Spec.SecurityContext
	if s != nil && s.RunAsUser != nil && os.Getenv(isolated) == "all" {
		u := &syscall.Credential{Uid: uint32(*s.RunAsUser)} // #nosec G115 -- validated by the API server
		if s.RunAsGroup != nil {
			u.Gid = uint32(*s.RunAsGroup) // #nosec G115 -- validated by the API server
		}
		if s.FSGroup != nil {
			u.Groups = []uint32{uint32(*s.FSGroup)} // #nosec G115 -- validated by the API server
		}
		cmd.SysProcAttr.Credential = u
	}
	return cmd, nil
}

func (p *pod) logPath() string { return filepath.Join(p.node.root, p.object.Name+".log") }

func (p *pod) tail() string {
	b, _ := os.ReadFile(p.logPath())
	return string(b[max(0, len(b)-2000):])
}

// preStop runs the hook before the end of a container.
func (p *pod) preStop(args []string, env map[string]string) {
	cmd, err := p.command(args, env)
	if err == nil {
		defer cmd.Stdout.(*os.File).Close()
		err = cmd.Start()
	}
	if err != nil {
		p.cluster.log("preStop of %s: %v", p.object.Name, err)
		return
	}
	ctx, stop := context.WithTimeout(p.cluster.context, p.grace)
	defer stop()
	defer context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })()
	if err := cmd.Wait(); err != nil {
		p.cluster.log("preStop of %s: %v\n%s", p.object.Name, err, p.tail())
	}
}

// environment returns the variables of a container.
func (p *pod) environment(c core.Container) (map[string]string, error) {
	host, port := p.cluster.apiAddress()
	env := map[string]string{"PATH": "/usr/lib/forkd", "HOSTNAME": p.object.Name,
		"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
	for _, v := range c.Env {
		switch from := v.ValueFrom; {
		case from == nil:
			env[v.Name] = expand(v.Value, env)
		case from.FieldRef != nil:
			text, err := p.field(from.FieldRef)
			if err != nil {
				return nil, err
			}
			env[v.Name] = text
		case from.SecretKeyRef != nil:
			r := from.SecretKeyRef
			o, err := p.cluster.kube.CoreV1().Secrets(p.object.Namespace).Get(p.cluster.context, r.Name, meta.GetOptions{})
			if err != nil {
				return nil, err
			}
			text, ok := o.Data[r.Key]
			if !ok {
				return nil, fmt.Errorf("the Secret %s has no key %s", r.Name, r.Key)
			}
			env[v.Name] = string(text)
		default:
			return nil, fmt.Errorf("procnode does not know the source of %s", v.Name)
		}
	}
	return env, nil
}

var variable = regexp.MustCompile(`\$\(([A-Za-z_][A-Za-z0-9_]*)\)`)

// expand replaces $(NAME) by variables that exist.
func expand(text string, env map[string]string) string {
	return variable.ReplaceAllStringFunc(text, func(m string) string {
		if v, ok := env[m[2:len(m)-1]]; ok {
			return v
		}
		return m
	})
}

// watch probes the container until it or the pod ends. A container that is not alive is killed.
func (p *pod) watch(c core.Container, gone <-chan struct{}, cmd *exec.Cmd) {
	ctx, stop := context.WithCancel(p.cluster.context)
	defer stop()
	go func() { // also while the pod ends
		select {
		case <-gone:
		case <-p.ending:
		}
		stop()
	}()
	if c.LivenessProbe != nil {
		go p.probe(ctx, c, c.LivenessProbe, func(ok bool) {
			if !ok {
				p.cluster.log("%s is not alive", p.object.Name)
				_ = cmd.Process.Kill()
			}
		})
	}
	if c.ReadinessProbe != nil {
		go p.probe(ctx, c, c.ReadinessProbe, func(ok bool) {
			if ctx.Err() == nil {
				p.report(func(s *containerStatus) { s.ready = ok })
			}
		})
	}
	<-ctx.Done()
}

// probe tells the results of a probe: a success at once, failures after the probe's number of them.
func (p *pod) probe(ctx context.Context, c core.Container, probe *core.Probe, tell func(bool)) {
	period := time.Duration(probe.PeriodSeconds) * time.Second
	client := &http.Client{Timeout: time.Duration(probe.TimeoutSeconds) * time.Second,
		Transport: &http.Transport{DisableKeepAlives: true,
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // #nosec G402 -- as a kubelet
	failed := 0
	for next := 100 * time.Millisecond; ; next = period { // the first one soon
		select {
		case <-ctx.Done():
			return
		case <-time.After(next):
		}
		if err := get(ctx, client, p.address, c, probe.HTTPGet); err == nil {
			failed = 0
			tell(true)
		} else if failed++; failed >= int(probe.FailureThreshold) {
			tell(false)
		}
	}
}

func get(ctx context.Context, client *http.Client, host string, c core.Container, to *core.HTTPGetAction) error {
	if to == nil {
		return errors.New("procnode knows httpGet only")
	}
	port := to.Port.IntValue()
	for _, one := range c.Ports {
		if one.Name == to.Port.StrVal && one.Name != "" {
			port = int(one.ContainerPort)
		}
	}
	url := strings.ToLower(string(to.Scheme)) + "://" + net.JoinHostPort(host, strconv.Itoa(port)) + to.Path
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode >= 400 {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	return nil
}
