#include "wire/report.h"

#include "wire/codec.h"

namespace hvdtune {
namespace {

// Of an empty Called: what the smallest one takes.
constexpr size_t kCalledBytes = 4 + 1 + 8 + 4 + 4;

void put(Writer& out, const ProcessIdentity& identity) {
  out.put(identity.pid);
  out.put(identity.pid_namespace);
}

ProcessIdentity get_identity(Reader& in) {
  ProcessIdentity identity;
  identity.pid = in.get<int32_t>();
  identity.pid_namespace = in.get<uint64_t>();
  return identity;
}

}  // namespace

std::vector<uint8_t> encode(const ProcessIdentity& identity) {
  Writer out;
  put(out, identity);
  return out.take();
}

std::vector<uint8_t> encode(const Pulse& pulse) {
  Writer out;
  out.put(pulse.sent_ns);
  out.put(pulse.stuck_ns);
  out.put(pulse.cpu_ns);
  return out.take();
}

std::vector<uint8_t> encode(const RankReport& report) {
  Writer out;
  out.put(report.round);
  out.put(report.waiting_threads);
  out.put(std::string_view(report.stack));
  out.put(report.left_out);
  out.put(static_cast<uint32_t>(report.called.size()));
  for (const Called& called : report.called) {
    out.put(called.process_set);
    out.put(static_cast<uint8_t>(called.joins));
    out.put(called.age_ns);
    out.put(std::string_view(called.name));
    out.put(std::string_view(called.description));
  }
  return out.take();
}

std::vector<uint8_t> encode(const ProbeRequest& request) {
  Writer out;
  out.put(request.rank);
  put(out, request.who);
  return out.take();
}

std::vector<uint8_t> encode(const ProbeResult& result) {
  Writer out;
  out.put(result.rank);
  out.put(result.state);
  return out.take();
}

ProcessIdentity decode_identity(Bytes bytes) {
  Reader in(bytes);
  const ProcessIdentity identity = get_identity(in);
  in.finish();
  return identity;
}

Pulse decode_pulse(Bytes bytes) {
  Reader in(bytes);
  Pulse pulse;
  pulse.sent_ns = in.get<uint64_t>();
  pulse.stuck_ns = in.get<uint64_t>();
  pulse.cpu_ns = in.get<uint64_t>();
  in.finish();
  return pulse;
}

RankReport decode_report(Bytes bytes) {
  Reader in(bytes);
  RankReport report;
  report.round = in.get<uint32_t>();
  report.waiting_threads = in.get<uint32_t>();
  report.stack = in.get_string();
  report.left_out = in.get<uint32_t>();
  report.called.resize(in.get_count(kCalledBytes));
  for (Called& called : report.called) {
    called.process_set = in.get<uint32_t>();
    called.joins = in.get<uint8_t>() != 0;
    called.age_ns = in.get<uint64_t>();
    called.name = in.get_string();
    called.description = in.get_string();
  }
  in.finish();
  return report;
}

ProbeRequest decode_probe_request(Bytes bytes) {
  Reader in(bytes);
  ProbeRequest request;
  request.rank = in.get<int32_t>();
  request.who = get_identity(in);
  in.finish();
  return request;
}

ProbeResult decode_probe_result(Bytes bytes) {
  Reader in(bytes);
  ProbeResult result;
  result.rank = in.get<int32_t>();
  result.state = in.get_enum<ProcessState>(kProcessStateCount);
  in.finish();
  return result;
}

}  // namespace hvdtune
