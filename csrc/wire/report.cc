#include "wire/report.h"

#include "wire/codec.h"

namespace hvdtune {
namespace {

// Of an empty Called: what the smallest one takes.
constexpr size_t kCalledBytes = 4 + 1 + 8 + 4 + 4;

void put(Writer& out, const Introduction& introduction) {
  out.put(introduction.pid);
  out.put(introduction.pid_namespace);
}

Introduction get_introduction(Reader& in) {
  Introduction introduction;
  introduction.pid = in.get<int32_t>();
  introduction.pid_namespace = in.get<uint64_t>();
  return introduction;
}

}  // namespace

std::vector<uint8_t> encode(const Introduction& introduction) {
  Writer out;
  put(out, introduction);
  return out.take();
}

std::vector<uint8_t> encode(const Pulse& pulse) {
  Writer out;
  out.put(pulse.sent_ns);
  out.put(pulse.stuck_ns);
  out.put(pulse.cpu_ns);
  return out.take();
}

std::vector<uint8_t> encode(const Report& report) {
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

std::vector<uint8_t> encode(const Look& look) {
  Writer out;
  out.put(look.rank);
  put(out, look.who);
  return out.take();
}

std::vector<uint8_t> encode(const Sighting& sighting) {
  Writer out;
  out.put(sighting.rank);
  out.put(sighting.sight);
  return out.take();
}

Introduction decode_introduction(Bytes bytes) {
  Reader in(bytes);
  const Introduction introduction = get_introduction(in);
  in.finish();
  return introduction;
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

Report decode_report(Bytes bytes) {
  Reader in(bytes);
  Report report;
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

Look decode_look(Bytes bytes) {
  Reader in(bytes);
  Look look;
  look.rank = in.get<int32_t>();
  look.who = get_introduction(in);
  in.finish();
  return look;
}

Sighting decode_sighting(Bytes bytes) {
  Reader in(bytes);
  Sighting sighting;
  sighting.rank = in.get<int32_t>();
  sighting.sight = in.get_enum<Sight>(kSightCount);
  in.finish();
  return sighting;
}

}  // namespace hvdtune
