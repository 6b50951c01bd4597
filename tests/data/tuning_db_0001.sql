BEGIN TRANSACTION;
CREATE TABLE autofuse_schema (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT autofuse_schema_pkc PRIMARY KEY (version_num)
);
INSERT INTO "autofuse_schema" VALUES('0001');
CREATE TABLE calibration (
	environment_id INTEGER NOT NULL, 
	name VARCHAR(200) NOT NULL, 
	value DOUBLE NOT NULL, 
	CONSTRAINT pk_calibration PRIMARY KEY (environment_id, name), 
	CONSTRAINT fk_calibration_environment_id FOREIGN KEY(environment_id) REFERENCES environment (id)
);
INSERT INTO "calibration" VALUES(1,'copy_gb_s',123.5);
CREATE TABLE candidate (
	id INTEGER NOT NULL, 
	workload_id INTEGER NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	json TEXT NOT NULL, 
	origin TEXT NOT NULL, 
	kernels INTEGER NOT NULL, 
	CONSTRAINT pk_candidate PRIMARY KEY (id), 
	CONSTRAINT fk_candidate_workload_id FOREIGN KEY(workload_id) REFERENCES workload (id), 
	CONSTRAINT uq_candidate_workload_id_digest UNIQUE (workload_id, digest)
);
INSERT INTO "candidate" VALUES(1,1,'base','{"plan":"base"}','random',2);
INSERT INTO "candidate" VALUES(2,1,'broken','{"plan":"broken"}','random',2);
INSERT INTO "candidate" VALUES(3,1,'good','{"plan":"good"}','random',2);
INSERT INTO "candidate" VALUES(4,1,'loose','{"plan":"loose"}','random',2);
CREATE TABLE candidate_group (
	candidate_id INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	group_id INTEGER NOT NULL, 
	CONSTRAINT pk_candidate_group PRIMARY KEY (candidate_id, position), 
	CONSTRAINT fk_candidate_group_candidate_id FOREIGN KEY(candidate_id) REFERENCES candidate (id), 
	CONSTRAINT fk_candidate_group_group_id FOREIGN KEY(group_id) REFERENCES group_ (id)
);
INSERT INTO "candidate_group" VALUES(1,0,1);
INSERT INTO "candidate_group" VALUES(1,1,2);
INSERT INTO "candidate_group" VALUES(1,2,1);
INSERT INTO "candidate_group" VALUES(2,0,3);
INSERT INTO "candidate_group" VALUES(2,1,2);
INSERT INTO "candidate_group" VALUES(2,2,3);
INSERT INTO "candidate_group" VALUES(3,0,4);
INSERT INTO "candidate_group" VALUES(3,1,2);
INSERT INTO "candidate_group" VALUES(3,2,4);
INSERT INTO "candidate_group" VALUES(4,0,5);
INSERT INTO "candidate_group" VALUES(4,1,2);
INSERT INTO "candidate_group" VALUES(4,2,5);
CREATE TABLE environment (
	id INTEGER NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	fingerprint VARCHAR(64) NOT NULL, 
	device TEXT NOT NULL, 
	must TEXT NOT NULL, 
	stale TEXT NOT NULL, 
	CONSTRAINT pk_environment PRIMARY KEY (id), 
	CONSTRAINT uq_environment_digest UNIQUE (digest)
);
INSERT INTO "environment" VALUES(1,'50db951e94cc6f820a58d1ee529fedf6','1b9ce947b2b6c3dd38ad013cd0626dea','cpu','[["codegen","1"],["isa","avx2"]]','[["driver","5"],["power","90"]]');
CREATE TABLE event (
	session_id INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	trial INTEGER NOT NULL, 
	codegen_s DOUBLE NOT NULL, 
	compile_s DOUBLE NOT NULL, 
	measure_s DOUBLE NOT NULL, 
	sampler_s DOUBLE NOT NULL, 
	best_us DOUBLE NOT NULL, 
	candidate_id INTEGER NOT NULL, 
	origin TEXT NOT NULL, 
	bound_us DOUBLE, 
	CONSTRAINT pk_event PRIMARY KEY (session_id, position), 
	CONSTRAINT fk_event_candidate_id FOREIGN KEY(candidate_id) REFERENCES candidate (id), 
	CONSTRAINT fk_event_session_id FOREIGN KEY(session_id) REFERENCES session (id)
);
INSERT INTO "event" VALUES(1,0,1,1.0,2.0,3.0,4.0,30.0,1,'random',NULL);
INSERT INTO "event" VALUES(1,1,3,1.0,2.0,3.0,4.0,10.0,3,'random',2.5);
CREATE TABLE group_ (
	id INTEGER NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	text TEXT, 
	CONSTRAINT pk_group_ PRIMARY KEY (id), 
	CONSTRAINT uq_group__digest UNIQUE (digest)
);
INSERT INTO "group_" VALUES(1,'g-base',NULL);
INSERT INTO "group_" VALUES(2,'g-shared',NULL);
INSERT INTO "group_" VALUES(3,'g-broken',NULL);
INSERT INTO "group_" VALUES(4,'g-good','group text');
INSERT INTO "group_" VALUES(5,'g-loose',NULL);
CREATE TABLE measurement (
	id INTEGER NOT NULL, 
	uid VARCHAR(64) NOT NULL, 
	created VARCHAR(40) NOT NULL, 
	session_id INTEGER, 
	environment_id INTEGER NOT NULL, 
	candidate_id INTEGER NOT NULL, 
	origin TEXT NOT NULL, 
	stage VARCHAR(20) NOT NULL, 
	n INTEGER, 
	min_us DOUBLE, 
	q1_us DOUBLE, 
	median_us DOUBLE, 
	q3_us DOUBLE, 
	mean_us DOUBLE, 
	stdev_us DOUBLE, 
	cache VARCHAR(20), 
	stopped VARCHAR(20), 
	mode VARCHAR(20), 
	failure_kind VARCHAR(40), 
	failure_message TEXT, 
	max_rel_error DOUBLE, 
	codegen_s DOUBLE NOT NULL, 
	compile_s DOUBLE NOT NULL, 
	measure_s DOUBLE NOT NULL, 
	sampler_s DOUBLE NOT NULL, 
	CONSTRAINT pk_measurement PRIMARY KEY (id), 
	CONSTRAINT ck_measurement_stage CHECK (stage IN ('search', 'final', 'baseline')), 
	CONSTRAINT ck_measurement_outcome CHECK ((median_us IS NULL) <> (failure_kind IS NULL)), 
	CONSTRAINT fk_measurement_candidate_id FOREIGN KEY(candidate_id) REFERENCES candidate (id), 
	CONSTRAINT fk_measurement_environment_id FOREIGN KEY(environment_id) REFERENCES environment (id), 
	CONSTRAINT fk_measurement_session_id FOREIGN KEY(session_id) REFERENCES session (id), 
	CONSTRAINT uq_measurement_uid UNIQUE (uid)
);
INSERT INTO "measurement" VALUES(1,'f118412d762a407e96ef0a5f65087087','2026-11-21T13:33:21.503290+00:00',1,1,1,'random','baseline',30,29.0,29.5,30.0,30.5,30.1,0.25,'cold','noise','call',NULL,NULL,1.0e-07,0.25,1.5,0.75,0.125);
INSERT INTO "measurement" VALUES(2,'a72a867e909741b294daa36a9e3d3e72','2026-11-21T13:33:21.535641+00:00',1,1,2,'random','search',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'compile','ptxas: too many registers
\x00\udcff',NULL,0.25,1.5,0.75,0.125);
INSERT INTO "measurement" VALUES(3,'73f87ea74d034631a4564d482733d1c3','2026-11-21T13:33:21.548888+00:00',1,1,3,'random','search',30,9.0,9.5,10.0,10.5,10.1,0.25,'cold','noise','call',NULL,NULL,1.0e-07,0.25,1.5,0.75,0.125);
INSERT INTO "measurement" VALUES(4,'509a431cae1d4d369c67c77d77b0c402','2026-11-21T13:33:21.575530+00:00',1,1,3,'random','final',30,9.5,10.0,10.5,11.0,10.6,0.25,'cold','noise','call',NULL,NULL,1.0e-07,0.25,1.5,0.75,0.125);
INSERT INTO "measurement" VALUES(5,'988737ff6d4f4f0a82005006d800556f','2026-11-21T13:33:21.618826+00:00',NULL,1,4,'random','search',30,19.0,19.5,20.0,20.5,20.1,0.25,'cold','noise','call',NULL,NULL,1.0e-07,0.25,1.5,0.75,0.125);
CREATE TABLE session (
	id INTEGER NOT NULL, 
	uid VARCHAR(64) NOT NULL, 
	environment_id INTEGER NOT NULL, 
	workload_id INTEGER NOT NULL, 
	strategy TEXT NOT NULL, 
	seed BIGINT NOT NULL, 
	budget_s DOUBLE NOT NULL, 
	started VARCHAR(40) NOT NULL, 
	ended VARCHAR(40), 
	finished BOOLEAN, 
	trials INTEGER, 
	measured INTEGER, 
	codegen_s DOUBLE, 
	compile_s DOUBLE, 
	measure_s DOUBLE, 
	sampler_s DOUBLE, 
	best_id INTEGER, 
	CONSTRAINT pk_session PRIMARY KEY (id), 
	CONSTRAINT fk_session_best_id FOREIGN KEY(best_id) REFERENCES candidate (id), 
	CONSTRAINT fk_session_environment_id FOREIGN KEY(environment_id) REFERENCES environment (id), 
	CONSTRAINT fk_session_workload_id FOREIGN KEY(workload_id) REFERENCES workload (id), 
	CONSTRAINT uq_session_uid UNIQUE (uid)
);
INSERT INTO "session" VALUES(1,'d12a3aa429d847ee94a9282ef75bfb4e',1,1,'random',7,60.0,'2026-11-21T13:33:21.480746+00:00','2026-11-21T13:33:21.590623+00:00',1,9,6,1.0,2.0,3.0,4.0,3);
INSERT INTO "session" VALUES(2,'9fe8ab1d45614257818731e6b411439e',1,1,'random',8,60.0,'2026-11-21T13:33:21.654675+00:00',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE session_baseline (
	session_id INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	candidate_id INTEGER NOT NULL, 
	CONSTRAINT pk_session_baseline PRIMARY KEY (session_id, position), 
	CONSTRAINT fk_session_baseline_candidate_id FOREIGN KEY(candidate_id) REFERENCES candidate (id), 
	CONSTRAINT fk_session_baseline_session_id FOREIGN KEY(session_id) REFERENCES session (id)
);
INSERT INTO "session_baseline" VALUES(1,0,'unfused',1);
INSERT INTO "session_baseline" VALUES(1,1,'xla-2022',1);
CREATE TABLE session_failure (
	session_id INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	kind TEXT NOT NULL, 
	count INTEGER NOT NULL, 
	CONSTRAINT pk_session_failure PRIMARY KEY (session_id, position), 
	CONSTRAINT fk_session_failure_session_id FOREIGN KEY(session_id) REFERENCES session (id)
);
INSERT INTO "session_failure" VALUES(1,0,'timeout',1);
INSERT INTO "session_failure" VALUES(1,1,'compile',2);
CREATE TABLE verdict (
	session_id INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	other TEXT NOT NULL, 
	other_us DOUBLE NOT NULL, 
	best_us DOUBLE NOT NULL, 
	ratio DOUBLE NOT NULL, 
	low DOUBLE NOT NULL, 
	high DOUBLE NOT NULL, 
	outcome VARCHAR(20) NOT NULL, 
	CONSTRAINT pk_verdict PRIMARY KEY (session_id, position), 
	CONSTRAINT fk_verdict_session_id FOREIGN KEY(session_id) REFERENCES session (id)
);
INSERT INTO "verdict" VALUES(1,0,'unfused',30.0,10.0,3.0,2.5,9e999,'faster');
CREATE TABLE workload (
	id INTEGER NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	text TEXT NOT NULL, 
	name TEXT NOT NULL, 
	nodes INTEGER NOT NULL, 
	CONSTRAINT pk_workload PRIMARY KEY (id), 
	CONSTRAINT uq_workload_digest UNIQUE (digest)
);
INSERT INTO "workload" VALUES(1,'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa','graph text','toy',3);
CREATE INDEX ix_environment_fingerprint ON environment (fingerprint);
CREATE INDEX ix_candidate_group_group_id ON candidate_group (group_id);
CREATE INDEX ix_session_workload_id ON session (workload_id);
CREATE INDEX ix_measurement_candidate_id ON measurement (candidate_id);
CREATE INDEX ix_measurement_session_id ON measurement (session_id);
COMMIT;
