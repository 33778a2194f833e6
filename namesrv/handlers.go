package namesrv

import (
	"errors"
	"hash/crc32"
	"time"

	"github.com/epochmq/epochmq/conf"
	"github.com/epochmq/epochmq/internal/fastjson"
	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// routes enters the handlers of the name server into a table of request codes. Everything but writing the key-value file or the
// configuration file is short and runs on the connection's loop.
func (s *Server) routes(mux *remoting.Mux) {
	files := remoting.Slow(remoting.NewClass("files", 1, 1000, 0))
	inline := map[int32]remoting.Handler{
		protocol.ReqGetRouteInfoByTopic: s.route, protocol.ReqRegisterBroker: s.register, protocol.ReqUnregisterBroker: s.unregister,
		protocol.ReqBrokerHeartbeat: s.heartbeat, protocol.ReqQueryDataVersion: s.queryVersion,
		protocol.ReqGetBrokerClusterInfo: s.clusterInfo, protocol.ReqGetBrokerMemberGroup: s.memberGroup,
		protocol.ReqWipeWritePermOfBroker: s.wipeWrite, protocol.ReqAddWritePermOfBroker: s.addWrite,
		protocol.ReqGetAllTopicListFromNameServer: s.topicList, protocol.ReqDeleteTopicInNamesrv: s.deleteTopic, protocol.ReqRegisterTopicInNamesrv: s.registerTopic,
		protocol.ReqGetTopicsByCluster: s.topicsByCluster, protocol.ReqGetSystemTopicListFromNS: s.systemTopics,
		protocol.ReqGetUnitTopicList: s.flagged(sysUnit, 0), protocol.ReqGetHasUnitSubTopicList: s.flagged(sysUnitSub, 0),
		protocol.ReqGetHasUnitSubUnUnitTopicList: s.flagged(sysUnitSub, sysUnit),
		protocol.ReqGetKVConfig:                  s.getKV, protocol.ReqGetKVListByNamespace: s.listKV, protocol.ReqGetNamesrvConfig: s.getConfig,
	}
	for code, h := range inline {
		mux.Handle(code, remoting.Inline, h)
	}
	mux.Handle(protocol.ReqPutKVConfig, files, s.putKV)
	mux.Handle(protocol.ReqDeleteKVConfig, files, s.deleteKV)
	mux.Handle(protocol.ReqUpdateNamesrvConfig, files, s.updateConfig)
}

// required returns a header field that must be there.
func required(req *remoting.Request, names ...string) ([]string, error) {
	out := make([]string, len(names))
	for i, n := range names {
		v, ok := req.Get(n)
		if !ok {
			return nil, protocol.Missing(n)
		}
		out[i] = string(v)
	}
	return out, nil
}

func (s *Server) body(resp *remoting.Response, v any) (err error) {
	resp.Body.Bytes, err = fastjson.Marshal(v)
	return err
}

const maxName = 1024 // bytes of a name or an address

func (s *Server) register(req *remoting.Request, resp *remoting.Response) error {
	f, err := required(req, "brokerName", "brokerAddr", "clusterName", "haServerAddr", "brokerId")
	if err != nil {
		return err
	}
	for _, v := range append(f, req.String("__ZONE_NAME")) {
		if len(v) > maxName {
			return protocol.Errorf(protocol.SystemError, "registration refused: a name or address has %d bytes, %d are allowed", len(v), maxName)
		}
	}
	id, _, err := req.Int64("brokerId")
	if err != nil {
		return err
	}
	want, _, err := req.Int64("bodyCrc32")
	if err != nil {
		return err
	}
	if want != 0 && int64(crc32.ChecksumIEEE(req.Body)&0x7FFFFFFF) != want {
		return &protocol.Error{Code: protocol.SystemError, Remark: "crc32 not match"}
	}
	compressed, _, _ := req.Bool("compressed")
	body, err := protocol.DecodeRegisterBody(req.Body, compressed, req.Version)
	if err != nil {
		return protocol.Errorf(protocol.SystemError, "registration of broker %s at %s: %v", f[0], f[1], err)
	}
	r := &Registration{Broker: f[0], Addr: f[1], Cluster: f[2], HAAddr: f[3], ID: id, Body: body, Channel: req.Conn(), Zone: req.String("__ZONE_NAME")}
	if ms, ok, err := req.Int64("heartbeatTimeoutMillis"); err != nil {
		return err
	} else if ok {
		r.Timeout = time.Duration(ms) * time.Millisecond
	}
	r.Whole, _, _ = req.Bool("epochmqWholeTable")
	if v, ok, _ := req.Bool("enableActingMaster"); ok {
		r.ActingMaster = &v
	}
	s.mu.Lock()
	out, err := s.table.Register(r, time.Now())
	s.mu.Unlock()
	if err != nil {
		return err
	}
	s.kick()
	s.notify(out.Notify)
	resp.Ext.Present()
	if out.MasterAddr != "" {
		resp.Ext.Add("haServerAddr", out.HAAddr)
		resp.Ext.Add("masterAddr", out.MasterAddr)
	}
	if s.config().ReturnOrderTopicConfigToBroker {
		if table, ok := s.kv.Namespace(orderTopicNamespace); ok {
			return s.body(resp, protocol.KVTable{Table: table})
		}
	}
	return nil
}

func (s *Server) unregister(req *remoting.Request, _ *remoting.Response) error {
	f, err := required(req, "brokerName", "brokerAddr", "clusterName", "brokerId")
	if err != nil {
		return err
	}
	if _, _, err := req.Int64("brokerId"); err != nil {
		return err
	}
	s.mu.Lock()
	known := s.table.Knows(f[2], f[0], f[1])
	change := s.table.Unregister(f[2], f[0], f[1], nil)
	s.mu.Unlock()
	if known {
		s.log.Info("broker left", "broker", f[0], "addr", f[1])
	}
	s.notify(change)
	return nil
}

func (s *Server) heartbeat(req *remoting.Request, _ *remoting.Response) error {
	f, err := required(req, "clusterName", "brokerName", "brokerAddr")
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.table.Heartbeat(f[0], f[1], f[2], time.Now())
	s.mu.Unlock()
	return nil
}

func (s *Server) queryVersion(req *remoting.Request, resp *remoting.Response) error {
	f, err := required(req, "clusterName", "brokerName", "brokerAddr")
	if err != nil {
		return err
	}
	var v protocol.DataVersion
	if err := fastjson.Unmarshal(req.Body, &v); err != nil {
		return protocol.Errorf(protocol.SystemError, "data version of broker %s: %v", f[2], err)
	}
	s.mu.Lock()
	changed, stored := s.table.QueryVersion(f[0], f[1], f[2], v, time.Now())
	s.mu.Unlock()
	resp.Ext.AddBool("changed", changed)
	if stored != nil {
		return s.body(resp, stored)
	}
	return nil
}

// firstStandardJSON is the version from which a client reads routes in standard JSON.
const firstStandardJSON = 401

func (s *Server) route(req *remoting.Request, resp *remoting.Response) error {
	cfg := s.config()
	if cfg.NeedWaitForService && time.Since(s.started) < time.Duration(cfg.WaitSecondsForService)*time.Second {
		return &protocol.Error{Code: protocol.SystemError, Remark: "name server not ready"}
	}
	topic, ok := req.Get("topic")
	if !ok {
		topic = []byte("null") // what RocketMQ looks for then
	}
	s.mu.RLock()
	r := s.table.Route(string(topic))
	s.mu.RUnlock()
	if r == nil {
		return protocol.Errorf(protocol.TopicNotExist, "No topic route info in name server for the topic: %s\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details.", topic)
	}
	if cfg.OrderMessageEnable {
		if v, ok := s.kv.Get(orderTopicNamespace, string(topic)); ok {
			r.OrderTopicConf = &v
		}
	}
	accept, _, _ := req.Bool("acceptStandardJsonOnly")
	standard := accept || req.Version >= firstStandardJSON
	if zoned, _, _ := req.Bool("__ZONE_MODE"); zoned {
		if zone := req.String("__ZONE_NAME"); zone != "" {
			FilterZone(r, zone)
			standard = accept
		}
	}
	var err error
	resp.Body.Bytes, err = r.Encode(standard)
	return err
}

func (s *Server) clusterInfo(_ *remoting.Request, resp *remoting.Response) error {
	s.mu.RLock()
	c := s.table.Clusters()
	s.mu.RUnlock()
	return s.body(resp, c)
}

func (s *Server) memberGroup(req *remoting.Request, resp *remoting.Response) error {
	f, err := required(req, "clusterName", "brokerName")
	if err != nil {
		return err
	}
	s.mu.RLock()
	m := s.table.Members(f[0], f[1])
	s.mu.RUnlock()
	return s.body(resp, protocol.BrokerMemberGroupBody{BrokerMemberGroup: m})
}

func (s *Server) wipeWrite(req *remoting.Request, resp *remoting.Response) error {
	return s.setWrite(req, resp, false, "wipeTopicCount")
}

func (s *Server) addWrite(req *remoting.Request, resp *remoting.Response) error {
	return s.setWrite(req, resp, true, "addTopicCount")
}

func (s *Server) setWrite(req *remoting.Request, resp *remoting.Response, on bool, count string) error {
	f, err := required(req, "brokerName")
	if err != nil {
		return err
	}
	s.mu.Lock()
	n := s.table.SetWrite(f[0], on)
	s.mu.Unlock()
	if n > 0 {
		s.log.Info("write permission changed", "broker", f[0], "writable", on, "topics", n)
	}
	resp.Ext.AddInt(count, int64(n))
	return nil
}

var errDisabled = &protocol.Error{Code: protocol.SystemError, Remark: "disable"}

func (s *Server) topicList(_ *remoting.Request, resp *remoting.Response) error {
	if !s.config().EnableAllTopicList {
		return errDisabled
	}
	s.mu.RLock()
	list := s.table.Topics()
	s.mu.RUnlock()
	return s.body(resp, protocol.TopicList{TopicList: nonNil(list)})
}

func nonNil(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

func (s *Server) topicsByCluster(req *remoting.Request, resp *remoting.Response) error {
	if !s.config().EnableTopicList {
		return errDisabled
	}
	f, err := required(req, "cluster")
	if err != nil {
		return err
	}
	s.mu.RLock()
	list := s.table.TopicsOfCluster(f[0])
	s.mu.RUnlock()
	return s.body(resp, protocol.TopicList{TopicList: list})
}

func (s *Server) systemTopics(_ *remoting.Request, resp *remoting.Response) error {
	s.mu.RLock()
	l := s.table.SystemTopics()
	s.mu.RUnlock()
	return s.body(resp, l)
}

func (s *Server) flagged(set, clear int32) remoting.Handler {
	return func(_ *remoting.Request, resp *remoting.Response) error {
		if !s.config().EnableTopicList {
			return errDisabled
		}
		s.mu.RLock()
		list := s.table.TopicsByFlag(set, clear)
		s.mu.RUnlock()
		return s.body(resp, protocol.TopicList{TopicList: list})
	}
}

func (s *Server) deleteTopic(req *remoting.Request, _ *remoting.Response) error {
	f, err := required(req, "topic")
	if err != nil {
		return err
	}
	s.mu.Lock()
	existed := s.table.DeleteTopic(f[0], req.String("clusterName"))
	s.mu.Unlock()
	if existed {
		s.log.Info("topic deleted", "topic", f[0], "cluster", req.String("clusterName"))
	}
	return nil
}

func (s *Server) registerTopic(req *remoting.Request, _ *remoting.Response) error {
	f, err := required(req, "topic")
	if err != nil {
		return err
	}
	var r protocol.TopicRouteData
	if err := fastjson.Unmarshal(req.Body, &r); err != nil {
		return protocol.Errorf(protocol.SystemError, "route of topic %s: %v", f[0], err)
	}
	s.mu.Lock()
	s.table.RegisterTopic(f[0], r.QueueDatas)
	s.mu.Unlock()
	return nil
}

func (s *Server) putKV(req *remoting.Request, _ *remoting.Response) error {
	namespace, ok1 := req.Get("namespace")
	key, ok2 := req.Get("key")
	value, ok3 := req.Get("value")
	if !ok1 || !ok2 || len(namespace) == 0 || len(key) == 0 {
		return &protocol.Error{Code: protocol.SystemError, Remark: "namespace or key is null"}
	}
	if !ok3 {
		return protocol.Missing("value")
	}
	if len(namespace) > maxName || len(key) > maxName {
		return protocol.Errorf(protocol.SystemError, "namespace or key is too long, %d bytes are allowed", maxName)
	}
	return s.kv.Put(string(namespace), string(key), string(value))
}

func (s *Server) deleteKV(req *remoting.Request, _ *remoting.Response) error {
	f, err := required(req, "namespace", "key")
	if err != nil {
		return err
	}
	return s.kv.Delete(f[0], f[1])
}

func (s *Server) getKV(req *remoting.Request, resp *remoting.Response) error {
	f, err := required(req, "namespace", "key")
	if err != nil {
		return err
	}
	v, ok := s.kv.Get(f[0], f[1])
	if !ok {
		return protocol.Errorf(protocol.QueryNotFound, "No config item, Namespace: %s Key: %s", f[0], f[1])
	}
	resp.Ext.Add("value", v)
	return nil
}

func (s *Server) listKV(req *remoting.Request, resp *remoting.Response) error {
	f, err := required(req, "namespace")
	if err != nil {
		return err
	}
	table, ok := s.kv.Namespace(f[0])
	if !ok {
		return protocol.Errorf(protocol.QueryNotFound, "No config item, Namespace: %s", f[0])
	}
	return s.body(resp, protocol.KVTable{Table: table})
}

func (s *Server) getConfig(_ *remoting.Request, resp *remoting.Response) error {
	resp.Body.Bytes = []byte(s.settings.Text())
	return nil
}

func (s *Server) updateConfig(req *remoting.Request, _ *remoting.Response) error {
	if len(req.Body) == 0 {
		return nil
	}
	changes, err := conf.ParseProperties(req.Body)
	if err != nil {
		return protocol.Errorf(protocol.SystemError, "string2Properties error: %v", err)
	}
	err = s.settings.Apply(changes)
	var no *conf.ForbiddenError
	if errors.As(err, &no) {
		return &protocol.Error{Code: protocol.NoPermission, Remark: "Can not update config in black list."}
	}
	return err
}
