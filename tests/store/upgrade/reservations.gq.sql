BEGIN TRANSACTION;
CREATE TABLE "_sqlite_migrations" (
   "id" INTEGER PRIMARY KEY,
   "migration_set" TEXT,
   "name" TEXT,
   "applied_at" TEXT
);
INSERT INTO "_sqlite_migrations" VALUES(1,'gq','first','2026-11-22 18:42:10.539031+00:00');
INSERT INTO "_sqlite_migrations" VALUES(2,'gq','keys_and_audit','2026-11-22 18:42:10.550385+00:00');
INSERT INTO "_sqlite_migrations" VALUES(3,'gq','who_goes_next','2026-11-22 18:42:10.642111+00:00');
INSERT INTO "_sqlite_migrations" VALUES(4,'gq','where_and_when','2026-11-22 18:42:10.655175+00:00');
INSERT INTO "_sqlite_migrations" VALUES(5,'gq','notices','2026-11-22 18:42:10.667320+00:00');
INSERT INTO "_sqlite_migrations" VALUES(6,'gq','crontabs','2026-11-22 18:42:10.681403+00:00');
INSERT INTO "_sqlite_migrations" VALUES(7,'gq','reservations','2026-11-22 18:42:10.694163+00:00');
CREATE TABLE accounts (
        account TEXT NOT NULL PRIMARY KEY,
        parent TEXT NOT NULL,
        description TEXT NOT NULL,
        shares INTEGER NOT NULL,
        guaranteed_gpus INTEGER,
        borrow_gpus INTEGER,
        unix_group TEXT NOT NULL,           -- whose members are in it
        coordinators TEXT NOT NULL,         -- JSON
        default_qos TEXT NOT NULL
    );
CREATE TABLE allocations (              -- what an attempt holds on one node
        job_id INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        node TEXT NOT NULL,
        tasks INTEGER NOT NULL,
        cpus INTEGER NOT NULL,
        gpus INTEGER NOT NULL,
        cpu_ids TEXT NOT NULL,              -- 0-3,8
        gpu_ids TEXT NOT NULL,
        memory_mib INTEGER NOT NULL,
        phase TEXT NOT NULL,                -- preparing prepared going live stopping
        is_stranded INTEGER NOT NULL,       -- its node is lost; what it holds is not given away
        freed_at REAL,                      -- empty while the node still has it
        user_cpu_s REAL,
        system_cpu_s REAL,
        max_rss_mib INTEGER,
        PRIMARY KEY (job_id, attempt, node)
    );
INSERT INTO "allocations" VALUES(1,1,'n1',1,1,0,'0','',0,'stopping',0,1.79537293303999352447e+09,0.002819,3.82399999999999970837e-03,9);
INSERT INTO "allocations" VALUES(2,1,'n1',2,2,0,'0-1','',0,'stopping',0,1.79537293655009341244e+09,0.209391,0.017899,25);
INSERT INTO "allocations" VALUES(3,1,'n1',1,4,2,'0-3','0-1',0,'live',0,NULL,NULL,NULL,NULL);
INSERT INTO "allocations" VALUES(3,1,'n2',1,4,2,'0-3','0-1',0,'live',0,NULL,NULL,NULL,NULL);
CREATE TABLE attempts (
        job_id INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        nodes TEXT NOT NULL,                -- names, batch node first
        node_count INTEGER NOT NULL,
        tasks INTEGER NOT NULL,
        cpus INTEGER NOT NULL,
        gpus INTEGER NOT NULL,
        memory_mib INTEGER NOT NULL,
        allocated_at REAL NOT NULL,
        start_at REAL,
        end_at REAL,
        outcome TEXT,
        exit_code INTEGER,
        signal INTEGER,
        reason TEXT NOT NULL,
        why TEXT NOT NULL,
        failure_class TEXT NOT NULL,
        after_ending TEXT,                  -- end, requeue, retry
        grace_s INTEGER NOT NULL,
        master_port INTEGER NOT NULL,
        next_step INTEGER NOT NULL,
        user_cpu_s REAL NOT NULL,
        system_cpu_s REAL NOT NULL,
        max_rss_mib INTEGER NOT NULL,
        grants TEXT NOT NULL,               -- JSON: what it holds on each node
        is_forgotten INTEGER NOT NULL DEFAULT 0, billing INTEGER NOT NULL DEFAULT 0, estimate TEXT, slot TEXT NOT NULL DEFAULT '', reservation TEXT NOT NULL DEFAULT '', occurrence INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (job_id, attempt)
    );
INSERT INTO "attempts" VALUES(1,1,'n1',1,1,1,0,0,1.79537293290571713447e+09,1.79537293297994494435e+09,1.79537293301757335667e+09,'FAILED',3,0,'NonZeroExitCode','','','end',0,29000,0,0.002819,3.82399999999999970837e-03,9,'[{"node":"n1","cpus":[0]}]',0,0,NULL,'','',0);
INSERT INTO "attempts" VALUES(2,1,'n1',1,2,2,0,0,1.79537293580771970752e+09,1.79537293588958644864e+09,1.79537293653434562685e+09,'COMPLETED',0,0,'None','','','end',0,29001,1,0.209391,0.017899,25,'[{"node":"n1","tasks":2,"cpus":[0,1]}]',0,0,NULL,'','',0);
INSERT INTO "attempts" VALUES(3,1,'n1,n2',2,2,8,4,0,1.79537293835357642177e+09,1.79537293845398807524e+09,NULL,NULL,NULL,NULL,'None','','',NULL,0,29002,0,0.0,0.0,0,'[{"node":"n1","cpus":[0,1,2,3],"gpus":[0,1]},{"node":"n2","cpus":[0,1,2,3],"gpus":[0,1]}]',0,4000000,NULL,'','',0);
CREATE TABLE audit (                    -- who did what, when, from where, and what came of it; only added to
        seq INTEGER PRIMARY KEY,
        at REAL NOT NULL,
        user TEXT NOT NULL,
        uid INTEGER,
        origin TEXT NOT NULL,
        action TEXT NOT NULL,
        object TEXT NOT NULL,
        outcome TEXT NOT NULL,              -- done, or the code of the refusal
        detail TEXT NOT NULL
    );
INSERT INTO "audit" VALUES(1,1.79537293290571713447e+09,'root',0,'local','Submit','job 1','done','wrap');
INSERT INTO "audit" VALUES(2,1.79537293580771970752e+09,'root',0,'local','Submit','job 2','done','wrap');
INSERT INTO "audit" VALUES(3,1.79537293642616176602e+09,'root',0,'local','CreateStep','job 2','done','');
INSERT INTO "audit" VALUES(4,1.79537293835357642177e+09,'root',0,'local','Submit','job 3','done','running');
INSERT INTO "audit" VALUES(5,1.79537294154991030692e+09,'root',0,'local','Submit','job 4','done','wrap');
INSERT INTO "audit" VALUES(6,1.79537294274591279026e+09,'root',0,'local','Submit','job 5','done','wrap');
INSERT INTO "audit" VALUES(7,1.79537294408594703671e+09,'root',0,'local','Submit','job 6','done','wrap');
CREATE TABLE budgets (                  -- of limits in GPU-hours a day, week or month: what is used up
        holder TEXT NOT NULL,
        name TEXT NOT NULL,
        resource TEXT NOT NULL,
        per_user INTEGER NOT NULL,
        user TEXT NOT NULL,                 -- empty: all users together
        began_at REAL NOT NULL,             -- the day, week or month
        used REAL NOT NULL,                 -- weighted GPU-seconds until used_at
        used_at REAL NOT NULL,
        rate INTEGER NOT NULL,              -- millionths of a weighted GPU in use since then
        PRIMARY KEY (holder, name, resource, per_user, user)
    );
CREATE TABLE cron_entries (             -- lines of crontabs that become jobs
        user TEXT NOT NULL,
        number INTEGER NOT NULL,
        line INTEGER NOT NULL,              -- of the text
        schedule TEXT NOT NULL,             -- five fields
        zone TEXT NOT NULL,                 -- empty: the controller's own
        overlap TEXT NOT NULL,              -- skip, allow
        missed TEXT NOT NULL,               -- skip, once
        spec TEXT NOT NULL,                 -- JSON: of each of its jobs
        followed_until REAL NOT NULL,       -- what was due until then has been seen to
        last_due_at REAL,
        last_job_id INTEGER,
        last_state TEXT NOT NULL,           -- how that job ended
        trouble TEXT NOT NULL,              -- what went wrong since one ended well
        trouble_at REAL,
        PRIMARY KEY (user, number)
    );
CREATE TABLE crontabs (
        user TEXT NOT NULL PRIMARY KEY,
        uid INTEGER NOT NULL,
        set_at REAL NOT NULL,
        text TEXT NOT NULL
    );
CREATE TABLE dropped_notices (user TEXT NOT NULL PRIMARY KEY, dropped INTEGER NOT NULL);
CREATE TABLE events (                   -- the change log
        seq INTEGER PRIMARY KEY,
        at REAL NOT NULL,
        kind TEXT NOT NULL,
        job_id INTEGER,
        node TEXT,
        body TEXT NOT NULL                  -- JSON
    );
INSERT INTO "events" VALUES(1,1.79537293078439545634e+09,'HalfLifeSet',NULL,NULL,'{"type":"HalfLifeSet","at":1795372930.7843955,"half_life_s":604800.0}');
INSERT INTO "events" VALUES(2,1.79537293109864521029e+09,'NodeRegistered',NULL,'n1','{"type":"NodeRegistered","at":1795372931.0986452,"node":"n1","address":"127.0.0.1","inventory":{"cpus":4,"memory_mib":12052,"gpus":[{"index":0,"uuid":"GPU-b8042c60-3b94-592f-997d-c400248f7b4b","type":"fake","memory_mib":16384,"is_fake":true},{"index":1,"uuid":"GPU-76965d93-ea05-583f-93c3-755d55d6d206","type":"fake","memory_mib":16384,"is_fake":true}],"isolation":{"cpu":"weight","memory":"cgroup1","devices":"cgroup2","pids":"cgroup1","kill":"cgroup2"},"features":[],"gq_version":"0.1.0","attributes":{"arch":"x86_64","kernel":"6.18.44-fc-v669"},"resources":{},"data":[],"cpu_numa":[]},"incarnation":"66c08a8156f2580c","boot_id":"67f4be14-b041-4f75-9674-d937efbaa557","step_endpoint":"ipc:///tmp/gqdump/run/gq/042afa22a1dbe542/step-n1.sock","ticket_key":"g10eeCnuV837CiXWRFmalIraFOBnWovD5dJBGju2YUk="}');
INSERT INTO "events" VALUES(3,1.79537293132473421098e+09,'NodeRegistered',NULL,'n2','{"type":"NodeRegistered","at":1795372931.3247342,"node":"n2","address":"127.0.0.1","inventory":{"cpus":4,"memory_mib":12052,"gpus":[{"index":0,"uuid":"GPU-88bc4f95-be20-58e6-a652-c46a0aeeb9dc","type":"fake","memory_mib":16384,"is_fake":true},{"index":1,"uuid":"GPU-92921a64-7c8c-5653-bde5-2357f9576a41","type":"fake","memory_mib":16384,"is_fake":true}],"isolation":{"cpu":"weight","memory":"cgroup1","devices":"cgroup2","pids":"cgroup1","kill":"cgroup2"},"features":[],"gq_version":"0.1.0","attributes":{"arch":"x86_64","kernel":"6.18.44-fc-v669"},"resources":{},"data":[],"cpu_numa":[]},"incarnation":"dcfb159b882435b4","boot_id":"67f4be14-b041-4f75-9674-d937efbaa557","step_endpoint":"ipc:///tmp/gqdump/run/gq/042afa22a1dbe542/step-n2.sock","ticket_key":"RNj1c6n53pNp5LKmkWEa6J2Qw1yNdESfc16q4qgjE/o="}');
INSERT INTO "events" VALUES(4,1.79537293290571713447e+09,'MemberSet',NULL,NULL,'{"type":"MemberSet","at":1795372932.9057171,"member":{"user":"root","account":"default","from_group":true}}');
INSERT INTO "events" VALUES(5,1.79537293290571713447e+09,'JobSubmitted',1,NULL,'{"type":"JobSubmitted","at":1795372932.9057171,"job_id":1,"user":"root","uid":0,"gid":0,"spec":{"name":"wrap","resources":{},"chdir":"/tmp","submit_dir":"/tmp","submit_host":"vm","command":"exit 3","script_digest":"bb6220bfa599c6294ebc0954c2781c5513b565eb55f01aba387bfd0dc90176b1","environment_digest":"28221d2e493be761205c25cd339ac6834a9a943c508d08c80be46df7ecd704e8"},"partition":"main","time_limit_s":null,"requeue":true,"account":"default","expected_s":3600.0}');
INSERT INTO "events" VALUES(6,1.79537293290571713447e+09,'RequestAnswered',NULL,NULL,'{"type":"RequestAnswered","at":1795372932.9057171,"request_id":"gJwN/+tysTHvBAB36KyZnQ==","uid":0,"answer":"gqR0eXBlqVN1Ym1pdHRlZKZqb2JfaWQB"}');
INSERT INTO "events" VALUES(7,1.79537293290571713447e+09,'JobAllocated',1,NULL,'{"type":"JobAllocated","at":1795372932.9057171,"attempt_id":[1,1],"grants":[{"node":"n1","cpus":[0]}]}');
INSERT INTO "events" VALUES(8,1.79537293292976784706e+09,'PartPrepared',1,'n1','{"type":"PartPrepared","at":1795372932.9297678,"attempt_id":[1,1],"node":"n1","master_port":29000}');
INSERT INTO "events" VALUES(9,1.79537293292976784706e+09,'PartsReleased',1,NULL,'{"type":"PartsReleased","at":1795372932.9297678,"attempt_id":[1,1],"nodes":["n1"],"master_port":29000}');
INSERT INTO "events" VALUES(10,1.79537293301996397974e+09,'PartWentLive',1,'n1','{"type":"PartWentLive","at":1795372933.019964,"attempt_id":[1,1],"node":"n1"}');
INSERT INTO "events" VALUES(11,1.79537293297994494435e+09,'JobStarted',1,NULL,'{"type":"JobStarted","at":1795372932.979945,"attempt_id":[1,1],"master_port":29000}');
INSERT INTO "events" VALUES(12,1.79537293301757335667e+09,'JobEnding',1,NULL,'{"type":"JobEnding","at":1795372933.0175734,"attempt_id":[1,1],"outcome":"FAILED","then":"end","exit":{"code":3},"reason":"NonZeroExitCode"}');
INSERT INTO "events" VALUES(13,1.79537293303999352447e+09,'PartEmptied',1,'n1','{"type":"PartEmptied","at":1795372933.0399935,"attempt_id":[1,1],"node":"n1","usage":{"user_cpu_s":0.002819,"system_cpu_s":0.0038239999999999997,"max_rss_mib":9}}');
INSERT INTO "events" VALUES(14,1.79537293303999352447e+09,'JobEnded',1,NULL,'{"type":"JobEnded","at":1795372933.0399935,"job_id":1,"outcome":"FAILED","exit":{"code":3},"reason":"NonZeroExitCode"}');
INSERT INTO "events" VALUES(15,1.79537293580771970752e+09,'JobSubmitted',2,NULL,'{"type":"JobSubmitted","at":1795372935.8077197,"job_id":2,"user":"root","uid":0,"gid":0,"spec":{"name":"wrap","resources":{"ntasks":2},"chdir":"/tmp","submit_dir":"/tmp","submit_host":"vm","command":"gqrun -n2 true","script_digest":"82d4e2ab17ea06f92706272d5abb9429e72fe4be2e80836fc211d7de53499e36","environment_digest":"28221d2e493be761205c25cd339ac6834a9a943c508d08c80be46df7ecd704e8"},"partition":"main","time_limit_s":null,"requeue":true,"account":"default","expected_s":1.0}');
INSERT INTO "events" VALUES(16,1.79537293580771970752e+09,'RequestAnswered',NULL,NULL,'{"type":"RequestAnswered","at":1795372935.8077197,"request_id":"gLd0T6vjFFR60DQZ/irjNQ==","uid":0,"answer":"gqR0eXBlqVN1Ym1pdHRlZKZqb2JfaWQC"}');
INSERT INTO "events" VALUES(17,1.79537293580771970752e+09,'JobAllocated',2,NULL,'{"type":"JobAllocated","at":1795372935.8077197,"attempt_id":[2,1],"grants":[{"node":"n1","tasks":2,"cpus":[0,1]}]}');
INSERT INTO "events" VALUES(18,1795372935.8501,'PartPrepared',2,'n1','{"type":"PartPrepared","at":1795372935.8501,"attempt_id":[2,1],"node":"n1","master_port":29001}');
INSERT INTO "events" VALUES(19,1795372935.8501,'PartsReleased',2,NULL,'{"type":"PartsReleased","at":1795372935.8501,"attempt_id":[2,1],"nodes":["n1"],"master_port":29001}');
INSERT INTO "events" VALUES(20,1.79537293591148400303e+09,'PartWentLive',2,'n1','{"type":"PartWentLive","at":1795372935.911484,"attempt_id":[2,1],"node":"n1"}');
INSERT INTO "events" VALUES(21,1.79537293588958644864e+09,'JobStarted',2,NULL,'{"type":"JobStarted","at":1795372935.8895864,"attempt_id":[2,1],"master_port":29001}');
INSERT INTO "events" VALUES(22,1.79537293642616176602e+09,'StepStarted',2,NULL,'{"type":"StepStarted","at":1795372936.4261618,"step_id":[2,1,0],"key":"wCM3/fIRus8LTH/R9OQ9Y0SKrPtAezNLeahs3kXQOA0=","layout":{"name":"true","parts":[{"node":"n1","first_rank":0,"tasks":2,"cpus":[0,1],"gpus":[],"roles":[]}],"cpus_per_task":1,"gpus_per_task":null,"kill_on_bad_exit":true,"overlap":false,"roles":[]}}');
INSERT INTO "events" VALUES(23,1.79537293642616176602e+09,'RequestAnswered',NULL,NULL,'{"type":"RequestAnswered","at":1795372936.4261618,"request_id":"4T21FV3I1Ot3M+tffqv3Og==","uid":0,"answer":"h6R0eXBlq1N0ZXBDcmVhdGVkpmpvYl9pZAKnYXR0ZW1wdAGkc3RlcACja2V5xCDAIzf98hG6zwtMf9H05D1jRIqs+0B7M0t5qGzeRdA4DaZsYXlvdXSHpG5hbWWkdHJ1ZaVwYXJ0c5GGpG5vZGWibjGqZmlyc3RfcmFuawCldGFza3MCpGNwdXOSAAGkZ3B1c5Clcm9sZXOQrWNwdXNfcGVyX3Rhc2sBrWdwdXNfcGVyX3Rhc2vAsGtpbGxfb25fYmFkX2V4aXTDp292ZXJsYXDCpXJvbGVzkKVub2Rlc5GDpHBhcnSGpG5vZGWibjGqZmlyc3RfcmFuawCldGFza3MCpGNwdXOSAAGkZ3B1c5Clcm9sZXOQqGVuZHBvaW502TZpcGM6Ly8vdG1wL2dxZHVtcC9ydW4vZ3EvMDQyYWZhMjJhMWRiZTU0Mi9zdGVwLW4xLnNvY2uqcHVibGljX2tleaA="}');
INSERT INTO "events" VALUES(24,1.7953729364368169308e+09,'StepPartReceived',2,'n1','{"type":"StepPartReceived","at":1795372936.436817,"step_id":[2,1,0],"node":"n1"}');
INSERT INTO "events" VALUES(25,1.79537293652903628352e+09,'StepPartEnded',2,'n1','{"type":"StepPartEnded","at":1795372936.5290363,"step_id":[2,1,0],"node":"n1","exit":{},"outcome":"COMPLETED","usage":{"user_cpu_s":0.00784,"system_cpu_s":0.0,"max_rss_mib":9}}');
INSERT INTO "events" VALUES(26,1.79537293652903628352e+09,'StepFinished',2,NULL,'{"type":"StepFinished","at":1795372936.5290363,"step_id":[2,1,0],"exit":{},"outcome":"COMPLETED"}');
INSERT INTO "events" VALUES(27,1.79537293653434562685e+09,'JobEnding',2,NULL,'{"type":"JobEnding","at":1795372936.5343456,"attempt_id":[2,1],"outcome":"COMPLETED","then":"end","exit":{}}');
INSERT INTO "events" VALUES(28,1.79537293655009341244e+09,'PartEmptied',2,'n1','{"type":"PartEmptied","at":1795372936.5500934,"attempt_id":[2,1],"node":"n1","usage":{"user_cpu_s":0.209391,"system_cpu_s":0.017899,"max_rss_mib":25}}');
INSERT INTO "events" VALUES(29,1.79537293655009341244e+09,'JobEnded',2,NULL,'{"type":"JobEnded","at":1795372936.5500934,"job_id":2,"outcome":"COMPLETED","exit":{}}');
INSERT INTO "events" VALUES(30,1.79537293835357642177e+09,'JobSubmitted',3,NULL,'{"type":"JobSubmitted","at":1795372938.3535764,"job_id":3,"user":"root","uid":0,"gid":0,"spec":{"name":"running","resources":{"nodes_min":2,"is_exclusive":true},"time_limit_s":1200,"requeue":true,"chdir":"/tmp","output":"/dev/null","submit_dir":"/tmp","submit_host":"vm","command":"sleep 12","script_digest":"6e8872f683d58ee2366d3ed32ab20c896f57c024a3e96d60372cb09b8d8cf9df","environment_digest":"28221d2e493be761205c25cd339ac6834a9a943c508d08c80be46df7ecd704e8"},"partition":"main","time_limit_s":1200,"requeue":true,"account":"default","expected_s":1200.0}');
INSERT INTO "events" VALUES(31,1.79537293835357642177e+09,'RequestAnswered',NULL,NULL,'{"type":"RequestAnswered","at":1795372938.3535764,"request_id":"1iX5ILjQjTe1/U1/Jim43A==","uid":0,"answer":"gqR0eXBlqVN1Ym1pdHRlZKZqb2JfaWQD"}');
INSERT INTO "events" VALUES(32,1.79537293835357642177e+09,'JobAllocated',3,NULL,'{"type":"JobAllocated","at":1795372938.3535764,"attempt_id":[3,1],"grants":[{"node":"n1","cpus":[0,1,2,3],"gpus":[0,1]},{"node":"n2","cpus":[0,1,2,3],"gpus":[0,1]}],"billing":4000000}');
INSERT INTO "events" VALUES(33,1.79537293839019060134e+09,'PartPrepared',3,'n2','{"type":"PartPrepared","at":1795372938.3901906,"attempt_id":[3,1],"node":"n2"}');
INSERT INTO "events" VALUES(34,1.79537293839019060134e+09,'PartPrepared',3,'n1','{"type":"PartPrepared","at":1795372938.3901906,"attempt_id":[3,1],"node":"n1","master_port":29002}');
INSERT INTO "events" VALUES(35,1.79537293839019060134e+09,'PartsReleased',3,NULL,'{"type":"PartsReleased","at":1795372938.3901906,"attempt_id":[3,1],"nodes":["n2"],"master_port":29002}');
INSERT INTO "events" VALUES(36,1.79537293842395019529e+09,'PartWentLive',3,'n2','{"type":"PartWentLive","at":1795372938.4239502,"attempt_id":[3,1],"node":"n2"}');
INSERT INTO "events" VALUES(37,1.79537293842395019529e+09,'PartsReleased',3,NULL,'{"type":"PartsReleased","at":1795372938.4239502,"attempt_id":[3,1],"nodes":["n1"],"master_port":29002}');
INSERT INTO "events" VALUES(38,1.79537293849021053308e+09,'PartWentLive',3,'n1','{"type":"PartWentLive","at":1795372938.4902105,"attempt_id":[3,1],"node":"n1"}');
INSERT INTO "events" VALUES(39,1.79537293845398807524e+09,'JobStarted',3,NULL,'{"type":"JobStarted","at":1795372938.453988,"attempt_id":[3,1],"master_port":29002}');
INSERT INTO "events" VALUES(40,1.79537294154991030692e+09,'JobSubmitted',4,NULL,'{"type":"JobSubmitted","at":1795372941.5499103,"job_id":4,"user":"root","uid":0,"gid":0,"spec":{"name":"wrap","resources":{"gpus":1},"time_limit_s":600,"nice":5,"chdir":"/tmp","output":"/dev/null","comment":"as it was","submit_dir":"/tmp","submit_host":"vm","command":"true","script_digest":"9ab8fabc8c72bfa0416414631e26bd71b01f9dfae98dcf4656b1e2d78307876a","environment_digest":"28221d2e493be761205c25cd339ac6834a9a943c508d08c80be46df7ecd704e8"},"partition":"main","time_limit_s":600,"requeue":true,"account":"default","expected_s":600.0}');
INSERT INTO "events" VALUES(41,1.79537294154991030692e+09,'RequestAnswered',NULL,NULL,'{"type":"RequestAnswered","at":1795372941.5499103,"request_id":"2yZN9eLaR61ZIuNonmUAhQ==","uid":0,"answer":"gqR0eXBlqVN1Ym1pdHRlZKZqb2JfaWQE"}');
INSERT INTO "events" VALUES(42,1.79537294155298781392e+09,'StartEstimated',4,NULL,'{"type":"StartEstimated","at":1795372941.5529878,"job_id":4,"estimate":{"made_at":1795372941.5529878,"start_at":1795374138.453988,"p90_at":1795374138.453988}}');
INSERT INTO "events" VALUES(43,1.79537294274591279026e+09,'JobSubmitted',5,NULL,'{"type":"JobSubmitted","at":1795372942.7459128,"job_id":5,"user":"root","uid":0,"gid":0,"spec":{"name":"wrap","resources":{},"begin_at":1795373002.6999736,"chdir":"/tmp","output":"/dev/null","submit_dir":"/tmp","submit_host":"vm","command":"true","script_digest":"9ab8fabc8c72bfa0416414631e26bd71b01f9dfae98dcf4656b1e2d78307876a","environment_digest":"28221d2e493be761205c25cd339ac6834a9a943c508d08c80be46df7ecd704e8"},"partition":"main","time_limit_s":null,"requeue":true,"account":"default","expected_s":1.0}');
INSERT INTO "events" VALUES(44,1.79537294274591279026e+09,'RequestAnswered',NULL,NULL,'{"type":"RequestAnswered","at":1795372942.7459128,"request_id":"mr08lvMo6iOt/5kkMyENAw==","uid":0,"answer":"gqR0eXBlqVN1Ym1pdHRlZKZqb2JfaWQF"}');
INSERT INTO "events" VALUES(45,1.79537294408594703671e+09,'JobSubmitted',6,NULL,'{"type":"JobSubmitted","at":1795372944.085947,"job_id":6,"user":"root","uid":0,"gid":0,"spec":{"name":"wrap","resources":{},"is_held":true,"chdir":"/tmp","output":"/dev/null","submit_dir":"/tmp","submit_host":"vm","command":"true","script_digest":"9ab8fabc8c72bfa0416414631e26bd71b01f9dfae98dcf4656b1e2d78307876a","environment_digest":"28221d2e493be761205c25cd339ac6834a9a943c508d08c80be46df7ecd704e8"},"partition":"main","time_limit_s":null,"requeue":true,"account":"default","expected_s":1.0}');
INSERT INTO "events" VALUES(46,1.79537294408594703671e+09,'RequestAnswered',NULL,NULL,'{"type":"RequestAnswered","at":1795372944.085947,"request_id":"FNrX0nDetp6VT9KHl/DoKQ==","uid":0,"answer":"gqR0eXBlqVN1Ym1pdHRlZKZqb2JfaWQG"}');
CREATE TABLE jobs (
        job_id INTEGER PRIMARY KEY,
        name TEXT NOT NULL,
        user TEXT NOT NULL,
        uid INTEGER NOT NULL,
        gid INTEGER NOT NULL,
        partition TEXT NOT NULL,
        state TEXT NOT NULL,                -- PENDING STARTING RUNNING COMPLETING ENDED
        outcome TEXT,                       -- of an ended job: COMPLETED FAILED CANCELLED TIMEOUT ...
        reason TEXT NOT NULL,
        why TEXT NOT NULL,
        failure_class TEXT NOT NULL,
        hold TEXT,                          -- who holds it: user, admin, launch
        attempt INTEGER NOT NULL,           -- number of the latest attempt; 0: never allocated
        restart_count INTEGER NOT NULL,
        launch_failures INTEGER NOT NULL,
        nodes TEXT NOT NULL,                -- names, batch node first; none while it waits
        node_count INTEGER NOT NULL,        -- held or held last; wanted while it waits; likewise the next four
        tasks INTEGER NOT NULL,
        cpus INTEGER NOT NULL,
        gpus INTEGER NOT NULL,
        memory_mib INTEGER NOT NULL,
        nice INTEGER NOT NULL,
        time_limit_s INTEGER,               -- empty: unlimited
        requeue INTEGER NOT NULL,
        submit_at REAL NOT NULL,
        eligible_at REAL NOT NULL,
        start_at REAL,
        end_at REAL,
        exit_code INTEGER,
        signal INTEGER,
        avoid TEXT NOT NULL,                -- JSON: node -> until when
        spec TEXT NOT NULL,                 -- JSON: all that was asked for
        is_forgotten INTEGER NOT NULL DEFAULT 0 -- ended, and no longer in the controller's memory
    , account TEXT NOT NULL DEFAULT '', qos TEXT NOT NULL DEFAULT 'normal', accrue_at REAL, array_job_id INTEGER, array_task_id INTEGER, array_throttle INTEGER, array_waiting TEXT, array_cancelled TEXT, array_succeeded TEXT, array_failed TEXT, dependency TEXT, never TEXT NOT NULL DEFAULT '', ready TEXT NOT NULL DEFAULT '', hook TEXT NOT NULL DEFAULT '', expected_s REAL, estimate TEXT);
INSERT INTO "jobs" VALUES(1,'wrap','root',0,0,'main','ENDED','FAILED','NonZeroExitCode','','',NULL,1,0,0,'n1',1,1,1,0,0,0,NULL,1,1.79537293290571713447e+09,1.79537293290571713447e+09,1.79537293297994494435e+09,1.79537293301757335667e+09,3,0,'{}','{"name":"wrap","resources":{},"chdir":"/tmp","submit_dir":"/tmp","submit_host":"vm","command":"exit 3","script_digest":"bb6220bfa599c6294ebc0954c2781c5513b565eb55f01aba387bfd0dc90176b1","environment_digest":"28221d2e493be761205c25cd339ac6834a9a943c508d08c80be46df7ecd704e8"}',0,'default','normal',1.79537293290571713447e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'','','',3600.0,NULL);
INSERT INTO "jobs" VALUES(2,'wrap','root',0,0,'main','ENDED','COMPLETED','None','','',NULL,1,0,0,'n1',1,2,2,0,0,0,NULL,1,1.79537293580771970752e+09,1.79537293580771970752e+09,1.79537293588958644864e+09,1.79537293653434562685e+09,0,0,'{}','{"name":"wrap","resources":{"ntasks":2},"chdir":"/tmp","submit_dir":"/tmp","submit_host":"vm","command":"gqrun -n2 true","script_digest":"82d4e2ab17ea06f92706272d5abb9429e72fe4be2e80836fc211d7de53499e36","environment_digest":"28221d2e493be761205c25cd339ac6834a9a943c508d08c80be46df7ecd704e8"}',0,'default','normal',1.79537293580771970752e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'','','',1.0,NULL);
INSERT INTO "jobs" VALUES(3,'running','root',0,0,'main','RUNNING',NULL,'None','','',NULL,1,0,0,'n1,n2',2,2,8,4,0,0,1200,1,1.79537293835357642177e+09,1.79537293835357642177e+09,1.79537293845398807524e+09,NULL,NULL,NULL,'{}','{"name":"running","resources":{"nodes_min":2,"is_exclusive":true},"time_limit_s":1200,"requeue":true,"chdir":"/tmp","output":"/dev/null","submit_dir":"/tmp","submit_host":"vm","command":"sleep 12","script_digest":"6e8872f683d58ee2366d3ed32ab20c896f57c024a3e96d60372cb09b8d8cf9df","environment_digest":"28221d2e493be761205c25cd339ac6834a9a943c508d08c80be46df7ecd704e8"}',0,'default','normal',1.79537293835357642177e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'','','',1200.0,NULL);
INSERT INTO "jobs" VALUES(4,'wrap','root',0,0,'main','PENDING',NULL,'None','','',NULL,0,0,0,'',1,1,1,1,0,5,600,1,1.79537294154991030692e+09,1.79537294154991030692e+09,NULL,NULL,NULL,NULL,'{}','{"name":"wrap","resources":{"gpus":1},"time_limit_s":600,"nice":5,"chdir":"/tmp","output":"/dev/null","comment":"as it was","submit_dir":"/tmp","submit_host":"vm","command":"true","script_digest":"9ab8fabc8c72bfa0416414631e26bd71b01f9dfae98dcf4656b1e2d78307876a","environment_digest":"28221d2e493be761205c25cd339ac6834a9a943c508d08c80be46df7ecd704e8"}',0,'default','normal',1.79537294154991030692e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'','','',600.0,'{"made_at":1795372941.5529878,"start_at":1795374138.453988,"p90_at":1795374138.453988}');
INSERT INTO "jobs" VALUES(5,'wrap','root',0,0,'main','PENDING',NULL,'None','','',NULL,0,0,0,'',1,1,1,0,0,0,NULL,1,1.79537294274591279026e+09,1.79537300269997358317e+09,NULL,NULL,NULL,NULL,'{}','{"name":"wrap","resources":{},"begin_at":1795373002.6999736,"chdir":"/tmp","output":"/dev/null","submit_dir":"/tmp","submit_host":"vm","command":"true","script_digest":"9ab8fabc8c72bfa0416414631e26bd71b01f9dfae98dcf4656b1e2d78307876a","environment_digest":"28221d2e493be761205c25cd339ac6834a9a943c508d08c80be46df7ecd704e8"}',0,'default','normal',1.79537300269997358317e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'','','',1.0,NULL);
INSERT INTO "jobs" VALUES(6,'wrap','root',0,0,'main','PENDING',NULL,'None','','','user',0,0,0,'',1,1,1,0,0,0,NULL,1,1.79537294408594703671e+09,1.79537294408594703671e+09,NULL,NULL,NULL,NULL,'{}','{"name":"wrap","resources":{},"is_held":true,"chdir":"/tmp","output":"/dev/null","submit_dir":"/tmp","submit_host":"vm","command":"true","script_digest":"9ab8fabc8c72bfa0416414631e26bd71b01f9dfae98dcf4656b1e2d78307876a","environment_digest":"28221d2e493be761205c25cd339ac6834a9a943c508d08c80be46df7ecd704e8"}',0,'default','normal',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'','','',1.0,NULL);
CREATE TABLE keys (                     -- who may come in from another host (CURVE); nothing here is secret
        public TEXT NOT NULL PRIMARY KEY,   -- Z85
        kind TEXT NOT NULL,                 -- node, user, join (a token that lets one node join)
        name TEXT NOT NULL,                 -- of the node or the user; of a token: the node that it is for
        uid INTEGER,
        gid INTEGER,
        is_login INTEGER NOT NULL,
        added_at REAL NOT NULL,
        added_by TEXT NOT NULL,
        expires_at REAL,
        joined TEXT NOT NULL,               -- of a token that was used: the key of the node that it let in
        note TEXT NOT NULL
    );
CREATE TABLE lengths (                  -- how long the last jobs ran of a user in an account
        user TEXT NOT NULL,
        account TEXT NOT NULL,
        gpus INTEGER NOT NULL,              -- that the jobs asked for; -1: all jobs
        learned_at REAL NOT NULL,
        lengths_s TEXT NOT NULL,            -- JSON: the latest last
        PRIMARY KEY (user, account, gpus)
    );
INSERT INTO "lengths" VALUES('root','default',0,1.79537293653434562685e+09,'[0.038,0.645]');
INSERT INTO "lengths" VALUES('root','default',-1,1.79537293653434562685e+09,'[0.038,0.645]');
CREATE TABLE limits (
        holder TEXT NOT NULL,               -- user, account, qos
        name TEXT NOT NULL,
        resource TEXT NOT NULL,
        per_user INTEGER NOT NULL,
        most REAL NOT NULL,
        enforced_at TEXT NOT NULL,          -- submit, start
        PRIMARY KEY (holder, name, resource, per_user)
    );
CREATE TABLE members (                  -- users in accounts, and what they used there
        user TEXT NOT NULL,
        account TEXT NOT NULL,
        shares INTEGER NOT NULL,
        is_default INTEGER NOT NULL,
        from_group INTEGER NOT NULL,
        usage REAL NOT NULL,                -- weighted GPU-seconds, decayed until usage_at
        usage_at REAL NOT NULL,
        usage_rate INTEGER NOT NULL,        -- millionths of a weighted GPU in use since then
        PRIMARY KEY (user, account)
    );
INSERT INTO "members" VALUES('root','default',1,0,1,0.0,1.79537293845398807524e+09,4000000);
CREATE TABLE meta (name TEXT NOT NULL PRIMARY KEY, value);
INSERT INTO "meta" VALUES('half_life_s',604800.0);
INSERT INTO "meta" VALUES('half_lives','[]');
INSERT INTO "meta" VALUES('next_job_id',7);
CREATE TABLE nodes (
        node TEXT NOT NULL PRIMARY KEY,
        address TEXT NOT NULL,
        is_lost INTEGER NOT NULL,
        is_down INTEGER NOT NULL,
        is_drained INTEGER NOT NULL,
        reason TEXT NOT NULL,
        reason_by TEXT NOT NULL,
        reason_at REAL,
        cpus INTEGER NOT NULL,
        memory_mib INTEGER NOT NULL,
        gpus INTEGER NOT NULL,
        drained_gpus TEXT NOT NULL,         -- JSON: GPU -> reason
        backoff_until REAL NOT NULL,        -- left out of planning until then
        backoff_failures INTEGER NOT NULL,
        registered_at REAL NOT NULL,
        incarnation TEXT NOT NULL,
        boot_id TEXT NOT NULL,
        step_endpoint TEXT NOT NULL,
        step_public_key TEXT NOT NULL,
        secret_ticket_key BLOB NOT NULL,
        inventory TEXT NOT NULL             -- JSON
    );
INSERT INTO "nodes" VALUES('n1','127.0.0.1',0,0,0,'','',NULL,4,12052,2,'{}',0.0,0,1.79537293109864521029e+09,'66c08a8156f2580c','67f4be14-b041-4f75-9674-d937efbaa557','ipc:///tmp/gqdump/run/gq/042afa22a1dbe542/step-n1.sock','',X'835D1E7829EE57CDFB0A25D644599A948ADA14E0675A8BC3E5D2411A3BB66149','{"cpus":4,"memory_mib":12052,"gpus":[{"index":0,"uuid":"GPU-b8042c60-3b94-592f-997d-c400248f7b4b","type":"fake","memory_mib":16384,"is_fake":true},{"index":1,"uuid":"GPU-76965d93-ea05-583f-93c3-755d55d6d206","type":"fake","memory_mib":16384,"is_fake":true}],"isolation":{"cpu":"weight","memory":"cgroup1","devices":"cgroup2","pids":"cgroup1","kill":"cgroup2"},"features":[],"gq_version":"0.1.0","attributes":{"arch":"x86_64","kernel":"6.18.44-fc-v669"},"resources":{},"data":[],"cpu_numa":[]}');
INSERT INTO "nodes" VALUES('n2','127.0.0.1',0,0,0,'','',NULL,4,12052,2,'{}',0.0,0,1.79537293132473421098e+09,'dcfb159b882435b4','67f4be14-b041-4f75-9674-d937efbaa557','ipc:///tmp/gqdump/run/gq/042afa22a1dbe542/step-n2.sock','',X'44D8F573A9F9DE9369E4B2A691611AE89D90C35C8D74449F735EAAE2A82313FA','{"cpus":4,"memory_mib":12052,"gpus":[{"index":0,"uuid":"GPU-88bc4f95-be20-58e6-a652-c46a0aeeb9dc","type":"fake","memory_mib":16384,"is_fake":true},{"index":1,"uuid":"GPU-92921a64-7c8c-5653-bde5-2357f9576a41","type":"fake","memory_mib":16384,"is_fake":true}],"isolation":{"cpu":"weight","memory":"cgroup1","devices":"cgroup2","pids":"cgroup1","kill":"cgroup2"},"features":[],"gq_version":"0.1.0","attributes":{"arch":"x86_64","kernel":"6.18.44-fc-v669"},"resources":{},"data":[],"cpu_numa":[]}');
CREATE TABLE notices (                  -- what owners are told
        notice_id INTEGER PRIMARY KEY,
        user TEXT NOT NULL,
        uid INTEGER NOT NULL,
        job_id INTEGER NOT NULL,            -- 0: of no job
        occasion TEXT NOT NULL,             -- begin, end, fail, ...
        kind TEXT NOT NULL,                 -- mail, webhook, slack, command
        target TEXT NOT NULL,               -- address, URL, command
        body TEXT NOT NULL,                 -- JSON
        queued_at REAL NOT NULL,
        next_at REAL NOT NULL,              -- of one that waits: when it is tried
        attempts INTEGER NOT NULL,
        why TEXT NOT NULL,                  -- why the last attempt failed
        state TEXT NOT NULL,                -- waiting, delivered, given_up
        ended_at REAL
    );
CREATE TABLE occurrences (              -- each time that something is kept
        reservation_id INTEGER NOT NULL,
        number INTEGER NOT NULL,
        reservation TEXT NOT NULL,
        owner TEXT NOT NULL,
        begin_at REAL NOT NULL,
        end_at REAL NOT NULL,               -- as planned
        state TEXT NOT NULL,                -- PLANNED ACTIVE OVER RELEASED SKIPPED ENDED FAILED
        ended_at REAL,
        why TEXT NOT NULL,
        nodes INTEGER NOT NULL,
        gpus INTEGER NOT NULL,
        missing_gpus INTEGER NOT NULL,
        used_at REAL,                       -- when the first job started in it
        empty_since REAL,
        used_gpu_s REAL NOT NULL,
        grants TEXT NOT NULL,               -- JSON
        PRIMARY KEY (reservation_id, number)
    );
CREATE TABLE qos (
        qos TEXT NOT NULL PRIMARY KEY,
        description TEXT NOT NULL,
        priority INTEGER NOT NULL,
        usage_factor REAL NOT NULL,
        max_time_s INTEGER,
        users TEXT NOT NULL,                -- JSON; likewise the next two
        groups TEXT NOT NULL,
        accounts TEXT NOT NULL
    );
CREATE TABLE requests (                 -- answers by request, so that a repeated request is done once
        request_id BLOB NOT NULL PRIMARY KEY,
        at REAL NOT NULL,
        uid INTEGER NOT NULL,
        answer BLOB NOT NULL
    );
INSERT INTO "requests" VALUES(X'809C0DFFEB72B131EF040077E8AC999D',1.79537293290571713447e+09,0,X'82A474797065A95375626D6974746564A66A6F625F696401');
INSERT INTO "requests" VALUES(X'80B7744FABE314547AD03419FE2AE335',1.79537293580771970752e+09,0,X'82A474797065A95375626D6974746564A66A6F625F696402');
INSERT INTO "requests" VALUES(X'E13DB5155DC8D4EB7733EB5F7EABF73A',1.79537293642616176602e+09,0,X'87A474797065AB5374657043726561746564A66A6F625F696402A7617474656D707401A47374657000A36B6579C420C02337FDF211BACF0B4C7FD1F4E43D63448AACFB407B334B79A86CDE45D0380DA66C61796F757487A46E616D65A474727565A570617274739186A46E6F6465A26E31AA66697273745F72616E6B00A57461736B7302A463707573920001A46770757390A5726F6C657390AD637075735F7065725F7461736B01AD677075735F7065725F7461736BC0B06B696C6C5F6F6E5F6261645F65786974C3A76F7665726C6170C2A5726F6C657390A56E6F6465739183A47061727486A46E6F6465A26E31AA66697273745F72616E6B00A57461736B7302A463707573920001A46770757390A5726F6C657390A8656E64706F696E74D9366970633A2F2F2F746D702F677164756D702F72756E2F67712F303432616661323261316462653534322F737465702D6E312E736F636BAA7075626C69635F6B6579A0');
INSERT INTO "requests" VALUES(X'D625F920B8D08D37B5FD4D7F2629B8DC',1.79537293835357642177e+09,0,X'82A474797065A95375626D6974746564A66A6F625F696403');
INSERT INTO "requests" VALUES(X'DB264DF5E2DA47AD5922E3689E650085',1.79537294154991030692e+09,0,X'82A474797065A95375626D6974746564A66A6F625F696404');
INSERT INTO "requests" VALUES(X'9ABD3C96F328EA23ADFF992433210D03',1.79537294274591279026e+09,0,X'82A474797065A95375626D6974746564A66A6F625F696405');
INSERT INTO "requests" VALUES(X'14DAD7D270DEB69E954FD28797F0E829',1.79537294408594703671e+09,0,X'82A474797065A95375626D6974746564A66A6F625F696406');
CREATE TABLE reservations (
        reservation_id INTEGER PRIMARY KEY,
        name TEXT NOT NULL,
        owner TEXT NOT NULL,
        uid INTEGER NOT NULL,
        created_at REAL NOT NULL,
        cron TEXT NOT NULL,                 -- five fields, in the zone; empty: once
        zone TEXT NOT NULL,
        duration_s INTEGER NOT NULL,
        is_gone INTEGER NOT NULL,           -- deleted, or over for some time
        next_number INTEGER NOT NULL,       -- of its next occurrence
        planned_until REAL,                 -- so far the cron line has been followed
        over_at REAL,                       -- since when nothing is kept
        booking TEXT NOT NULL               -- JSON: the whole of what was asked for
    );
CREATE TABLE steps (
        job_id INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        step INTEGER NOT NULL,
        name TEXT NOT NULL,
        nodes TEXT NOT NULL,
        tasks INTEGER NOT NULL,
        cpus INTEGER NOT NULL,
        gpus INTEGER NOT NULL,
        start_at REAL NOT NULL,
        end_at REAL,
        outcome TEXT,                       -- empty while it runs
        exit_code INTEGER,
        signal INTEGER,
        user_cpu_s REAL NOT NULL,
        system_cpu_s REAL NOT NULL,
        max_rss_mib INTEGER NOT NULL,
        received TEXT NOT NULL,             -- JSON: nodes that have the order
        part_ends TEXT NOT NULL,            -- JSON: node -> how its tasks ended
        layout TEXT NOT NULL,               -- JSON
        secret_key BLOB NOT NULL,
        PRIMARY KEY (job_id, attempt, step)
    );
INSERT INTO "steps" VALUES(2,1,0,'true','n1',2,2,0,1.79537293642616176602e+09,1.79537293652903628352e+09,'COMPLETED',0,0,0.00784,0.0,9,'["n1"]','{"n1":[{},"COMPLETED"]}','{"name":"true","parts":[{"node":"n1","first_rank":0,"tasks":2,"cpus":[0,1],"gpus":[],"roles":[]}],"cpus_per_task":1,"gpus_per_task":null,"kill_on_bad_exit":true,"overlap":false,"roles":[]}',X'');
CREATE TABLE told_jobs (job_id INTEGER PRIMARY KEY, told TEXT NOT NULL);
CREATE UNIQUE INDEX "idx__sqlite_migrations_migration_set_name"
    ON "_sqlite_migrations" ("migration_set", "name");
CREATE INDEX jobs_in_memory ON jobs (job_id) WHERE is_forgotten = 0;
CREATE INDEX jobs_by_state ON jobs (state, end_at);
CREATE INDEX jobs_by_user ON jobs (user, job_id);
CREATE INDEX attempts_in_memory ON attempts (job_id) WHERE is_forgotten = 0;
CREATE INDEX allocations_held ON allocations (job_id, attempt) WHERE freed_at IS NULL;
CREATE INDEX allocations_by_node ON allocations (node, job_id);
CREATE INDEX steps_running ON steps (job_id, attempt) WHERE end_at IS NULL;
CREATE INDEX requests_by_time ON requests (at);
CREATE INDEX events_by_job ON events (job_id) WHERE job_id IS NOT NULL;
CREATE VIEW usage_by_user AS            -- held: from the allocation to the end; used: what the processes took
    SELECT jobs.user AS user,
           count(DISTINCT attempts.job_id) AS jobs,
           count(*) AS attempts,
           round(sum(attempts.gpus * held_s) / 3600, 3) AS gpu_hours_held,
           round(sum(attempts.cpus * held_s) / 3600, 3) AS cpu_hours_held,
           round(sum(user_cpu_s + system_cpu_s) / 3600, 3) AS cpu_hours_used
    FROM (SELECT *, coalesce(end_at, strftime('%s', 'now')) - allocated_at AS held_s FROM attempts) AS attempts
    JOIN jobs USING (job_id)
    GROUP BY jobs.user ORDER BY gpu_hours_held DESC, user;
CREATE VIEW gpus AS
    SELECT nodes.node AS node,
           json_extract(gpu.value, '$.index') AS gpu,
           json_extract(gpu.value, '$.type') AS type,
           json_extract(gpu.value, '$.memory_mib') AS memory_mib,
           json_extract(gpu.value, '$.uuid') AS uuid,
           json_extract(drained_gpus, '$."' || json_extract(gpu.value, '$.index') || '"') AS drained_because
    FROM nodes, json_each(nodes.inventory, '$.gpus') AS gpu;
CREATE INDEX audit_by_time ON audit (at);
CREATE TRIGGER audit_is_never_changed BEFORE UPDATE ON audit
    BEGIN SELECT RAISE(ABORT, 'the audit trail is only added to'); END;
CREATE TRIGGER audit_is_never_deleted BEFORE DELETE ON audit
BEGIN SELECT RAISE(ABORT, 'the audit trail is only added to'); END;
CREATE TRIGGER audit_is_never_replaced BEFORE INSERT ON audit WHEN NEW.seq > 0
    BEGIN SELECT RAISE(ABORT, 'the audit trail is only added to'); END;
CREATE INDEX jobs_by_array ON jobs (array_job_id, array_task_id) WHERE array_job_id IS NOT NULL;
CREATE INDEX jobs_by_account ON jobs (account, job_id);
CREATE VIEW queue AS                    -- jobs that have not ended; of an array's record the tasks that wait in it
    SELECT job_id, array_job_id, coalesce(array_task_id, array_waiting) AS array_tasks, name, user, account, qos,
           partition, state, hold, reason, node_count, cpus, gpus, nodes, nice,
           datetime(submit_at, 'unixepoch', 'localtime') AS submitted,
           datetime(start_at, 'unixepoch', 'localtime') AS started,
           CAST(coalesce(start_at, strftime('%s', 'now')) - submit_at AS INTEGER) AS waited_s,
           time_limit_s
    FROM jobs WHERE state <> 'ENDED' AND coalesce(array_waiting, 'none') <> ''
    ORDER BY state = 'PENDING', nice, job_id;
CREATE VIEW usage_by_account AS         -- billed: from the start to the end, times what was billed
    SELECT jobs.account AS account, jobs.user AS user, count(DISTINCT attempts.job_id) AS jobs,
           round(sum(attempts.gpus * ran_s) / 3600, 3) AS gpu_hours,
           round(sum(billing / 1000000.0 * ran_s) / 3600, 3) AS billed_hours
    FROM (SELECT *, coalesce(end_at, strftime('%s', 'now')) - start_at AS ran_s
          FROM attempts WHERE start_at IS NOT NULL) AS attempts
    JOIN jobs USING (job_id)
    GROUP BY jobs.account, jobs.user ORDER BY billed_hours DESC, account, user;
CREATE INDEX attempts_by_start ON attempts (start_at) WHERE estimate IS NOT NULL;
CREATE INDEX notices_waiting ON notices (notice_id) WHERE state = 'waiting';
CREATE INDEX notices_by_user ON notices (user, notice_id);
CREATE INDEX notices_by_end ON notices (ended_at);
CREATE INDEX reservations_there ON reservations (reservation_id) WHERE is_gone = 0;
CREATE INDEX occurrences_open ON occurrences (reservation_id, number) WHERE state IN ('PLANNED', 'ACTIVE');
CREATE INDEX occurrences_by_begin ON occurrences (begin_at);
CREATE INDEX occurrences_by_end ON occurrences (ended_at);
CREATE VIEW reservation_usage AS        -- of occurrences that began and are over; booked: until they were over
    SELECT owner, count(*) AS occurrences, sum(state = 'RELEASED') AS no_shows,
           round(sum(gpus * (min(ended_at, end_at) - begin_at)) / 3600, 3) AS gpu_hours_booked,
           round(sum(used_gpu_s) / 3600, 3) AS gpu_hours_used
    FROM occurrences
    WHERE state NOT IN ('PLANNED', 'ACTIVE', 'SKIPPED', 'FAILED') AND ended_at > begin_at
    GROUP BY owner ORDER BY gpu_hours_booked DESC, owner;
COMMIT;
